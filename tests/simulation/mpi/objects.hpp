// SPDX-License-Identifier: BSD-3-Clause
// The simulated MPI runtime, with the binary interface of MPICH (its mpi.h): the objects behind the handles. All ranks
// share the tables; each member of a communicator has its own state in it. The dynamic linker names a call that is
// missing here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "tests/simulation/host.hpp"

// Before each definition of PMPI_X: makes MPI_X the same function.
#define SIMULATED(name) extern "C" decltype(MPI_##name) MPI_##name __attribute__((alias("PMPI_" #name)));

namespace simulation::mpi {

// The objects of one kind. As in MPICH, the handle of the object that was freed last is used first.
template <class T, unsigned kFirst>
class Table {
 public:
  int add(std::unique_ptr<T> object) {
    if (free_.empty()) {
      free_.push_back(static_cast<int>(objects_.size()));
      objects_.emplace_back();
    }
    const int index = free_.back();
    free_.pop_back();
    objects_[static_cast<std::size_t>(index)] = std::move(object);
    return static_cast<int>(kFirst + static_cast<unsigned>(index));
  }
  // Null if there is no such object.
  T* find(int handle) {
    const auto index = static_cast<std::size_t>(static_cast<unsigned>(handle) - kFirst);
    return index < objects_.size() ? objects_[index].get() : nullptr;
  }
  T& at(int handle) {
    if (T* const found = find(handle)) return *found;
    host::fail("MPI: there is no object with the handle " + std::to_string(handle), true);
  }
  void erase(int handle) {
    objects_[static_cast<std::size_t>(static_cast<unsigned>(handle) - kFirst)].reset();
    free_.push_back(static_cast<int>(static_cast<unsigned>(handle) - kFirst));
  }
  std::size_t in_use() const { return objects_.size() - free_.size(); }

 private:
  std::vector<std::unique_ptr<T>> objects_;
  std::vector<int> free_;
};

using Attributes = std::map<int, void*>;

struct Keyval {
  MPI_Comm_copy_attr_function* copy_of_comm = nullptr;
  MPI_Comm_delete_attr_function* delete_of_comm = nullptr;
  MPI_Type_delete_attr_function* delete_of_type = nullptr;
  MPI_Win_delete_attr_function* delete_of_window = nullptr;
  void* extra = nullptr;
};

struct Group {
  std::vector<int> ranks;  // in MPI_COMM_WORLD
};

struct Block {
  std::ptrdiff_t offset;
  std::size_t bytes;
};

struct Type {
  int combiner = MPI_COMBINER_NAMED;
  std::vector<int> integers;
  std::vector<MPI_Aint> addresses;
  std::vector<MPI_Datatype> types;
  std::vector<Block> blocks;  // in the order of the type map, joined where they are adjacent
  std::ptrdiff_t lower = 0, extent = 0;
  std::size_t size = 0;
  bool committed = false;
  int references = 1;
  Attributes attributes;
};

struct Request {
  enum class Kind { kSend, kReceive, kCollective, kGeneralized } kind = Kind::kSend;
  int rank = 0;
  bool done = false, freed = false;
  MPI_Status status{};
  // A receive.
  void* buffer = nullptr;
  int count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int context = 0, source = 0, tag = 0;
  // A generalized request.
  MPI_Grequest_query_function* query = nullptr;
  MPI_Grequest_free_function* release = nullptr;
  void* extra = nullptr;
};

// A member's contribution to a collective operation.
struct Contribution {
  const char* call = "";
  int rank = 0;  // in the communicator
  const void* send = nullptr;
  void* receive = nullptr;
  int count = 0;  // elements sent
  MPI_Datatype type = MPI_BYTE;
  int receive_count = 0;
  MPI_Datatype receive_type = MPI_BYTE;
  MPI_Op op = MPI_OP_NULL;
  int root = 0, color = 0, key = 0;
  MPI_Comm* made = nullptr;
  MPI_Request request = MPI_REQUEST_NULL;
};
using Contributions = std::vector<Contribution>;

// Collective operations of the same members, which match in their order.
struct Channel {
  std::map<int, std::uint64_t> calls;               // of each member
  std::map<std::uint64_t, Contributions> meetings;  // that some have not joined
};

struct Member {
  Attributes attributes;
  MPI_Errhandler handler = MPI_ERRORS_ARE_FATAL;
  std::string name;
};

struct Comm {
  MPI_Comm handle = MPI_COMM_NULL;
  std::vector<int> ranks;  // in MPI_COMM_WORLD
  std::vector<Member> members;
  std::size_t freed = 0;
  std::map<std::pair<std::vector<int>, int>, Channel> channels;  // by members (none: all) and tag
  int rank_of(int in_world) const;                               // MPI_UNDEFINED: it is no member
  int own_rank() const { return rank_of(current()->rank); }
  Member& own() { return members[static_cast<std::size_t>(own_rank())]; }
};

struct Window {
  MPI_Errhandler handler = MPI_ERRORS_ARE_FATAL;
  std::string name;
  Attributes attributes;
};

struct Errhandler {
  MPI_Comm_errhandler_function* of_comm = nullptr;
  MPI_Win_errhandler_function* of_window = nullptr;
};

using Info = std::vector<std::pair<std::string, std::string>>;

struct Op {
  MPI_User_function* function = nullptr;
};

struct Message {
  int context = 0, source = 0, tag = 0;
  std::vector<char> data;
  MPI_Request sender = MPI_REQUEST_NULL;  // it waits for the receiver
};

// A rank's part of the runtime.
struct Process {
  bool initialized = false, finalized = false;
  int level = MPI_THREAD_SINGLE;
  std::vector<MPI_Request> receives;  // posted, in their order
  std::vector<Message> messages;      // arrived, and not yet received
  std::map<int, Time> last_arrival;   // of messages, by sender
};

struct Runtime {
  Table<Comm, 0x84000001> comms;
  Table<Group, 0x88000001> groups;
  Table<Type, 0x8c000100> types;
  Table<Request, 0xac000001> requests;
  Table<Window, 0xa0000001> windows;
  Table<Errhandler, 0x94000001> handlers;
  Table<Info, 0x9c000001> infos;
  Table<Op, 0x98000001> ops;
  Table<Keyval, 0xa4400001> keyvals;
  std::map<MPI_Datatype, Type> predefined;
  std::vector<Process> processes;  // by rank
  Comm world;
  std::vector<Comm> self;  // by rank
};
extern Runtime runtime;
// Makes MPI_COMM_WORLD of the ranks of the job.
void start();
// For the end of the job. Neither farside nor the programs leave an object, where MPI has been ended.
void check_that_all_is_free();

inline Process& process() { return runtime.processes[static_cast<std::size_t>(current()->rank)]; }
// Null if there is none.
Comm* find_comm(MPI_Comm handle);
Comm& comm_at(MPI_Comm handle);
// Those of the running rank.
void delete_attributes(Comm& comm);
Type* find_type(MPI_Datatype handle);
Type& type_at(MPI_Datatype handle);

// Gives an error of a call to the communicator's handler.
int raise(MPI_Comm comm, int error_class, const char* call);

std::vector<char> pack(const void* buffer, int count, MPI_Datatype type);
// Returns how many bytes were taken: fewer than `bytes` if the buffer is full.
std::size_t unpack(const char* data, std::size_t bytes, void* buffer, int count, MPI_Datatype type);
// into[i] = from[i] op into[i].
void reduce(MPI_Op op, MPI_Datatype type, int count, const void* from, void* into);

MPI_Request make_request(Request::Kind kind);
void complete(MPI_Request request);
// Waits, and frees the request.
int wait(MPI_Request& request, MPI_Status* status);

// Joins the collective operation of these members; the last one to arrive executes it for all. `members`: empty for
// all. The request completes some time after all have arrived.
MPI_Request join(Comm& comm, const Contribution& own, const std::function<void(Contributions&)>& execute,
                 const std::vector<int>& members = {}, int tag = -1);

}  // namespace simulation::mpi
