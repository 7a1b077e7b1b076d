// SPDX-License-Identifier: BSD-3-Clause
// In place of libfabric's header, which all its others include, where no header may need libfabric.
#error "libfabric is not in the include path here"
