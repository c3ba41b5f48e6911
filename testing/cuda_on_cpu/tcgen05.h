// Tensor memory and tcgen05 of sm_100: an address space of its own, products that one thread asks for, and their ends.
// A part of runtime.cpp, in its namespace.
//
// What is found beside wrong numbers: columns that are not allocated, or not known to be; an allocation that stays; sums that are
// read before the phase of a barrier at which their products arrive; a missing fence between that and the read; sums that are
// used before the wait for their load; operands that change while products read them; products of what a thread has not finished
// to load or store, or has not told of.
// Two blocks that multiply as one: a product is kept where the thread is that asked for it, and has operands and sums in both.
// Not modelled: more than one block on a multiprocessor that wait for columns; 64 rows in each of two blocks. Products of one
// thread are done in the order in which it asked for them, whatever their sums: PTX says so of equal sums and shapes,
// FlashAttention-4 and CUTLASS's attention for sm_100 rely on it for all.
#pragma once

constexpr int TENSOR_LANES = 128;
constexpr unsigned TENSOR_COLUMNS = 512;

struct TensorSpan {  // columns of tensor memory
  unsigned first, count;

  bool meets(TensorSpan other) const { return first < other.first + other.count && other.first < first + count; }
};

struct Tcgen05 {  // one product; the operands as the thread that asked for it found them
  int thread;
  GcElement element;
  int rows, columns;       // rows of one block
  unsigned first_column;
  bool add, done;
  bool pair;               // two blocks multiply as one: each has the columns' sums of its rows, and half of b
  bool turned;             // b is contiguous along its columns
  TensorSpan a_columns;    // of an operand in tensor memory; none: it is in shared memory
  unsigned long long a, b;
  std::vector<unsigned char> a_bytes, b_bytes;  // of one block after the other
  char sync;  // its address is for ThreadSanitizer: its end

  int columns_of_a_block() const { return pair ? columns / 2 : columns; }  // of b
  TensorSpan sums() const { return {first_column, (unsigned)columns}; }
  bool uses(TensorSpan span) const { return sums().meets(span) || a_columns.meets(span); }
};

struct TensorColumns {  // an allocation
  unsigned first, count;
  int warp;         // that allocated it
  uint64_t fenced;  // the event at which that warp has told others of it; 0: not yet
  bool pair;        // of two blocks that multiply as one
  bool left;        // the other block has freed them
};

struct TensorMemory {
  std::vector<uint32_t> words;  // by lane and column
  std::vector<uint64_t> ended;  // by column: the event at which its last product ended
  std::vector<uint64_t> told;   // by column: the event of the last fence after a thread's loads or stores
  std::vector<TensorColumns> allocated;
  bool gave_up;               // the right to allocate
  std::deque<Tcgen05> asked;  // the elements stay where they are
  uint64_t left;              // the event of the last fence after loads or stores
  unsigned left_in;           // the cluster phase of that fence

  uint32_t& at(int lane, unsigned column) { return words[(size_t)lane * TENSOR_COLUMNS + column]; }

  void reset() {
    words.assign(TENSOR_LANES * TENSOR_COLUMNS, GC_POISON | (uint32_t)GC_POISON << 16);
    ended.assign(TENSOR_COLUMNS, 0);
    told.assign(TENSOR_COLUMNS, 0);
    allocated.clear();
    asked.clear();
    gave_up = false;
    left = 0;
    left_in = 0;
  }
};

uint64_t tensor_events;  // ends of products and fences before synchronisation, so far

struct TensorLoad {  // sums on their way: their memory is poisoned, their numbers are here
  float* values;
  TensorSpan columns;
  std::vector<uint32_t> words;
};

struct TensorThread {
  uint64_t seen;  // the event of its last fence after synchronisation
  bool unfenced_alloc;
  std::vector<TensorSpan> unfenced;  // that it has loaded or stored since its last fence before synchronisation
  std::vector<TensorLoad> loads;
  std::vector<TensorSpan> stores;  // in flight
};

struct Commit {  // an arrival at a barrier when a thread's products are done
  int block;     // rank of the block whose thread asked for them
  int thread;
  size_t count;  // the block's products that were asked for before
};

// The lane of a row: PTX ISA, "Data path layout" D (128 rows) and F (64 rows) of tcgen05.mma.
inline int lane_of_row(int rows, int row) { return rows == 128 ? row : row / 16 * 32 + row % 16; }
