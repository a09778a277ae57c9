// The C interface between the worker and libtorch, as `src/ffi.rs` declares it again in Rust.
//
// Functions that can fail return a message that the caller frees with `slapo_free`, or null when all went well; no
// C++ exception leaves this library. Tensors are `at::Tensor*`, as `tch` holds them. Nothing here knows of programs,
// slots or steps.
#pragma once

#include <cstddef>
#include <cstdint>

namespace at {
class Tensor;
}

extern "C" {

struct SlapoCall;

// How the data behind an argument is to be read. The numbers are `ffi::Kind` in Rust.
enum SlapoKind : int32_t {
  SLAPO_NONE = 0,
  SLAPO_TENSOR = 1,   // no data: filled at each run
  SLAPO_TENSORS = 2,  // uint8_t[count]: whether the entry is present; those are filled at each run
  SLAPO_INT = 3,      // int64_t
  SLAPO_FLOAT = 4,    // double
  SLAPO_BOOL = 5,     // uint8_t
  SLAPO_INTS = 6,     // int64_t[count]
  SLAPO_FLOATS = 7,   // double[count]
  SLAPO_BOOLS = 8,    // uint8_t[count]
  SLAPO_DTYPE = 9,    // int64_t, a c10::ScalarType
  SLAPO_STRING = 10,  // char[count]
};

void slapo_free(char* message);

// Looks up the operator `name` (qualified, without overload) and prepares an empty call of it.
char* slapo_call_new(const char* name, const char* overload, SlapoCall** call);
void slapo_call_delete(SlapoCall* call);
// Gives the argument called `name`, or where that is null the next one in the order of the operator's schema. The data
// is converted to the schema's type.
char* slapo_call_argument(SlapoCall* call, const char* name, int32_t kind, const void* data, size_t count);
// No more arguments come: the others take the schema's defaults. `results` becomes the number of results, or -1 where a list decides it at run time.
char* slapo_call_finish(SlapoCall* call, int64_t* results);
// Runs the call below autograd, or, where `recorded`, under it. `tensors` fill the tensor positions in the order they were given; `push` receives each result (null for
// one that is not a defined tensor), lists flattened.
char* slapo_call_run(
    SlapoCall* call,
    const at::Tensor* const* tensors,
    size_t count,
    uint8_t recorded,
    void (*push)(void*, at::Tensor*),
    void* sink);
// Runs the call again under autograd and differentiates it. `gradients` has one entry per result, null for zero;
// `wanted` one per tensor; `push` receives one gradient per wanted tensor.
char* slapo_call_vjp(
    SlapoCall* call,
    const at::Tensor* const* tensors,
    const uint8_t* wanted,
    size_t count,
    const at::Tensor* const* gradients,
    size_t results,
    void (*push)(void*, at::Tensor*),
    void* sink);

// Whether the tensor is the only holder of a dense, contiguous storage of exactly its size.
uint8_t slapo_owns_storage(const at::Tensor* tensor);

// Whether the tensor is dense (strided) with this element type and shape.
uint8_t slapo_has_type(const at::Tensor* tensor, int8_t scalar_type, const int64_t* shape, size_t dims);

char* slapo_set_deterministic(uint8_t deterministic);
char* slapo_set_threads(int32_t threads);
int32_t slapo_threads();
char* slapo_version();
// libtorch's version and what it was built with and runs on, as one JSON object.
char* slapo_features();
// Splits [0, end) into ranges of at least `grain` over libtorch's own threads.
void slapo_parallel_for(int64_t end, int64_t grain, void (*body)(void*, int64_t, int64_t), void* context);

// Ranks in several processes. A store is a table that all of them reach; a group is some of them, connected by Gloo.
struct SlapoStore;
struct SlapoGroup;

// Serves the store on `listener`, a socket bound to `port`, or, where that is negative, connects to whoever serves it
// at `host`. Keys are under `prefix`. Times are in milliseconds.
char* slapo_store_open(
    const char* host, uint16_t port, int32_t listener, int64_t timeout, const char* prefix, SlapoStore** store);
void slapo_store_delete(SlapoStore* store);
char* slapo_store_set(SlapoStore* store, const char* key, const uint8_t* data, size_t count);
// Waits for the key; `push` receives its value.
char* slapo_store_get(
    SlapoStore* store, const char* key, int64_t timeout, void (*push)(void*, const uint8_t*, size_t), void* sink);

// Connects rank `rank` of `size` with the others, who do the same under this `prefix`. `address` is one of this machine
// that the others reach.
char* slapo_group_new(
    SlapoStore* store,
    const char* prefix,
    int32_t rank,
    int32_t size,
    const char* address,
    int64_t timeout,
    SlapoGroup** group);
void slapo_group_delete(SlapoGroup* group);
// Replaces a contiguous tensor by the sum of all ranks'.
char* slapo_group_sum(SlapoGroup* group, const at::Tensor* tensor);
// Sends `sent[i]` to rank i and fills `received[i]` from it, for every other rank; contiguous tensors, of which empty ones
// do not travel. Where that fails, `peer` is the rank that it failed with.
char* slapo_group_exchange(
    SlapoGroup* group, const at::Tensor* const* sent, const at::Tensor* const* received, int32_t* peer);

struct SlapoMemory {
  uint64_t current;  // bytes asked for and not freed
  uint64_t peak;     // highest `current` since the last reset
  uint64_t cached;   // bytes of freed blocks that are kept for reuse
  uint64_t mapped;   // large blocks that had to be mapped, ever
  uint64_t reused;   // large blocks that came from the cache, ever
};

// Makes the counting, caching allocator libtorch's CPU allocator. Once per process, before the first tensor.
void slapo_allocator_install();
void slapo_allocator_read(SlapoMemory* out);
void slapo_allocator_reset_peak();
// Returns cached blocks to the system.
void slapo_allocator_trim();
}
