// What CuTe, the layout algebra of NVIDIA's CUTLASS, says of the layouts that the prelude's functions and the tensor maps
// have: compiled for the host alone, it answers each line of stdin with a line of JSON. Asked by cute.py.
#include <cuda.h>
// as nvcc defines them: only then does CuTe encode tensor maps
#define __CUDACC_VER_MAJOR__ (CUDA_VERSION / 1000)
#define __CUDACC_VER_MINOR__ (CUDA_VERSION % 1000 / 10)
#define CUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL 1
#define CUTE_CVTA_GENERIC_TO_SHARED_ACTIVATED 1

#include <stdint.h>

#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

alignas(1024) static unsigned char shared[232448];  // of a block: 227 KiB on sm_90

// Addresses of shared memory start with 0 there.
static size_t __cvta_generic_to_shared(const void* address) {
  return (size_t)(static_cast<const unsigned char*>(address) - shared);
}

#include <cute/tensor.hpp>

#include <cute/atom/copy_traits_sm100.hpp>
#include <cute/atom/copy_traits_sm75.hpp>
#include <cute/atom/copy_traits_sm90.hpp>
#include <cute/atom/copy_traits_sm90_im2col.hpp>
#include <cute/atom/copy_traits_sm90_tma.hpp>
#include <cute/atom/mma_atom.hpp>
#include <cute/atom/mma_traits_sm100.hpp>
#include <cute/atom/mma_traits_sm75.hpp>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm90_gmma.hpp>
#include <cutlass/conv/collective/detail.hpp>
#include <cutlass/conv/convnd_problem_shape.hpp>
#include <cutlass/conv/detail.hpp>

using namespace cute;

// ---- answers --------------------------------------------------------------------------------------

using Numbers = std::vector<long long>;

static std::string text(const Numbers& numbers) {
  std::string found;
  for (const long long number : numbers) found += (found.empty() ? "" : ", ") + std::to_string(number);
  return "[" + found + "]";
}

// ---- the driver's functions -----------------------------------------------------------------------
// They encode nothing: they keep what CuTe hands to the driver.

static std::string handed_over;

template <class T>
static std::string list(const T* numbers, unsigned count) {
  return text(Numbers(numbers, numbers + count));
}

// Named as TensorMap names them; empty where it has no such thing.
static std::string name_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16: return "f16";
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return "bf16";
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: return "f32";
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: return "tf32";
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return "i8";
    default: return "";
  }
}

static int bytes_of(CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: return 0;
    case CU_TENSOR_MAP_SWIZZLE_32B: return 32;
    case CU_TENSOR_MAP_SWIZZLE_64B: return 64;
    case CU_TENSOR_MAP_SWIZZLE_128B: return 128;
    default: return -1;
  }
}

static std::string tensor(CUtensorMapDataType type, cuuint32_t rank, const cuuint64_t* extents, const cuuint64_t* strides,
                          const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                          CUtensorMapFloatOOBfill fill) {
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) return "\"dtype\": null";
  return "\"dtype\": \"" + name_of(type) + "\", \"extents\": " + list(extents, rank) + ", \"strides\": " +
         list(strides, rank - 1) + ", \"steps\": " + list(steps, rank) + ", \"swizzle\": " + std::to_string(bytes_of(swizzle));
}

extern "C" CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType type, cuuint32_t rank, void*,
                                                   const cuuint64_t* extents, const cuuint64_t* strides,
                                                   const cuuint32_t* box, const cuuint32_t* steps,
                                                   CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                                   CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  handed_over = tensor(type, rank, extents, strides, steps, interleave, swizzle, fill) + ", \"box\": " + list(box, rank);
  return CUDA_SUCCESS;
}

extern "C" CUresult CUDAAPI cuTensorMapEncodeIm2col(CUtensorMap*, CUtensorMapDataType type, cuuint32_t rank, void*,
                                                    const cuuint64_t* extents, const cuuint64_t* strides, const int* lower,
                                                    const int* upper, cuuint32_t channels, cuuint32_t pixels,
                                                    const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                                    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                                    CUtensorMapFloatOOBfill fill) {
  handed_over = tensor(type, rank, extents, strides, steps, interleave, swizzle, fill) + ", \"lower\": " +
                list(lower, rank - 2) + ", \"upper\": " + list(upper, rank - 2) +
                ", \"channels\": " + std::to_string(channels) + ", \"pixels\": " + std::to_string(pixels);
  return CUDA_SUCCESS;
}

// ---- fragments ------------------------------------------------------------------------------------

// Of each thread and each of its values, first axis and second of a matrix with so many rows.
template <class Layout>
static std::string places(const Layout& layout, int rows) {
  Numbers found;
  for (int thread = 0; thread < size<0>(layout); ++thread)
    for (int value = 0; value < size<1>(layout); ++value) {
      const int at = layout(thread, value);
      found.push_back(at % rows);
      found.push_back(at / rows);
    }
  return text(found);
}

template <class Operation>
static std::string mma(const std::string& name) {
  using Traits = MMA_Traits<Operation>;
  const int m = size<0>(typename Traits::Shape_MNK{}), n = size<1>(typename Traits::Shape_MNK{});
  return "{\"struct\": \"" + name + "\", \"a\": " + places(typename Traits::ALayout{}, m) + ", \"b\": " + places(typename Traits::BLayout{}, n) +
         ", \"c\": " + places(typename Traits::CLayout{}, m) + "}";
}

// Of each thread and each of its 16-bit values, the number of the value.
template <class Layout>
static std::string halves(const Layout& layout) {
  Numbers found;
  for (int thread = 0; thread < size<0>(layout); ++thread)
    for (int value = 0; value < size<1>(layout) / 16; ++value) found.push_back(layout(thread, value * 16) / 16);
  return text(found);
}

template <class Operation>
static std::string copy(const std::string& name) {
  using Traits = Copy_Traits<Operation>;
  return "{\"struct\": \"" + name + "\", \"from\": " + halves(typename Traits::SrcLayout{}) + ", \"to\": " + halves(typename Traits::DstLayout{}) + "}";
}

// ---- wgmma ----------------------------------------------------------------------------------------

template <class T, int n>
static auto wgmma_operation() {
  using Sums = conditional_t<is_same_v<T, int8_t>, int32_t, float>;
  return SM90::GMMA::ss_op_selector<T, T, Sums, Shape<_64, Int<n>, Int<128 / sizeof(T)>>>();
}

template <class T, int n>
static std::string sums() {
  if constexpr (n == 48)  // CuTe has its instructions in headers that take long to compile, and the layout here
    return places(SM90::GMMA::CLayout_64xN<n>{}, 64);
  else
    return places(typename MMA_Traits<decltype(wgmma_operation<T, n>())>::CLayout{}, 64);
}

template <class T, int bytes>
static auto swizzled_atom() {
  if constexpr (bytes == 128) return SM90::GMMA::Layout_K_SW128_Atom<T>{};
  else if constexpr (bytes == 64) return SM90::GMMA::Layout_K_SW64_Atom<T>{};
  else if constexpr (bytes == 32) return SM90::GMMA::Layout_K_SW32_Atom<T>{};
  else return SM90::GMMA::Layout_K_INTER_Atom<T>{};
}

// A tile in shared memory whose rows have so many bytes, swizzled by as many; 16: not at all.
template <class T, int bytes, int rows>
static auto tile() {
  return tile_to_shape(swizzled_atom<T, bytes>(), Shape<Int<rows>, Int<bytes / sizeof(T)>>{});
}

// Where each element of a tile lies: the number of its byte.
template <class T, int bytes>
static std::string layout() {
  constexpr int rows = 256;
  const auto memory = make_tensor(make_smem_ptr(reinterpret_cast<T*>(shared)), tile<T, bytes, rows>());
  Numbers places;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < size<1>(memory); ++column)
      places.push_back((long long)__cvta_generic_to_shared(&memory(row, column)));
  return text(places);
}

// The descriptors of an operand that starts at a byte of shared memory: of its blocks of rows, each of its steps in depth.
template <class T, int n, bool is_b, int rows>
static std::string descriptors(int start) {
  const auto slice = make_tiled_mma(wgmma_operation<T, n>()).get_slice(0);
  const auto memory = make_tensor(make_smem_ptr(reinterpret_cast<T*>(shared + start)), tile<T, 128, rows>());
  Numbers found;
  const auto print = [&](const auto& fragment) {
    for (int block = 0; block < size<1>(fragment); ++block)
      for (int step = 0; step < size<2>(fragment); ++step)
        found.push_back((long long)(*(fragment.data() + fragment.layout()(0, block, step))).desc_);
  };
  if constexpr (is_b) print(slice.make_fragment_B(slice.partition_B(memory)));
  else print(slice.make_fragment_A(slice.partition_A(memory)));
  return text(found);
}

// ---- tcgen05 --------------------------------------------------------------------------------------

template <class T, int m, int n>
static auto tcgen05_operation() {
  using Operation = conditional_t<sizeof(T) == 4, SM100_MMA_TF32_SS<T, T, float, m, n, UMMA::Major::K, UMMA::Major::K>,
                                  SM100_MMA_F16BF16_SS<T, T, float, m, n, UMMA::Major::K, UMMA::Major::K>>;
  return Operation{};
}

// The descriptors of an operand of 128 rows, or of 64 columns, that starts at a byte of shared memory: each step in depth.
template <class T, bool is_b>
static std::string tcgen05_descriptors(int start) {
  const auto slice = make_tiled_mma(tcgen05_operation<T, 128, 64>()).get_slice(0);
  constexpr int rows = is_b ? 64 : 128;
  const auto smem = tile_to_shape(UMMA::Layout_K_SW128_Atom<T>{}, Shape<Int<rows>, Int<128 / sizeof(T)>>{});
  const auto memory = make_tensor(make_smem_ptr(reinterpret_cast<T*>(shared + start)), smem);
  Numbers found;
  const auto print = [&](const auto& fragment) {
    for (int step = 0; step < size<2>(fragment); ++step)
      found.push_back((long long)(*(fragment.data() + fragment.layout()(0, 0, step))).desc_);
  };
  if constexpr (is_b) print(slice.make_fragment_B(slice.partition_B(memory)));
  else print(slice.make_fragment_A(slice.partition_A(memory)));
  return text(found);
}

template <class T, int m, int n>
static std::string tcgen05_instruction() {
  return std::to_string(UMMA::make_instr_desc<T, T, float, m, n, UMMA::Major::K, UMMA::Major::K>().desc_);
}

// The descriptors of an operand of 128 columns, contiguous along them, that starts at a byte of shared memory: each step of 64 in
// depth. The other operand is in tensor memory.
template <class T>
using WeightsOperation = SM100_MMA_F16BF16_TS<T, T, float, 128, 128, UMMA::Major::K, UMMA::Major::MN>;

template <class T>
static std::string tcgen05_turned(int start) {
  const auto slice = make_tiled_mma(WeightsOperation<T>{}).get_slice(0);
  const auto smem = tile_to_shape(UMMA::Layout_MN_SW128_Atom<T>{}, Shape<_128, _64>{}, Step<_2, _1>{});
  const auto memory = make_tensor(make_smem_ptr(reinterpret_cast<T*>(shared + start)), smem);
  const auto fragment = slice.make_fragment_B(slice.partition_B(memory));
  Numbers found;
  for (int step = 0; step < size<2>(fragment); ++step)
    found.push_back((long long)(*(fragment.data() + fragment.layout()(0, 0, step))).desc_);
  return text(found);
}

template <class T>
static std::string tcgen05_turned_instruction() {
  return std::to_string(UMMA::make_instr_desc<T, T, float, 128, 128, UMMA::Major::K, UMMA::Major::MN>().desc_);
}

// The place in tensor memory of each element of such an operand, row by row: its lane, and its number in the lane.
template <class T>
static std::string tcgen05_weights() {
  const auto fragment = MMA_Traits<WeightsOperation<T>>::FrgTypeA::make(Shape<Shape<_128, _16>, _1, _4>{});
  Numbers found;
  for (int row = 0; row < 128; ++row)
    for (int depth = 0; depth < 64; ++depth) {
      const long long at = fragment.layout()(make_coord(make_coord(row, depth % 16), 0, depth / 16));
      found.push_back(at / TMEM::DP<T>{});
      found.push_back(at % TMEM::DP<T>{});
    }
  return text(found);
}

// Of two blocks that multiply 256 rows as one: the rows and columns that each has of a, of b or of the sums.
template <int n, char which>
static std::string tcgen05_of_two() {
  using Operation = SM100_MMA_F16BF16_2x1SM_SS<half_t, half_t, float, 256, n, UMMA::Major::K, UMMA::Major::K>;
  std::string found;
  for (int rank = 0; rank < 2; ++rank) {
    const auto slice = make_tiled_mma(Operation{}).get_slice(rank);
    Numbers one;
    const auto list = [&](const auto& part) {
      for (int i = 0; i < size(part); ++i) one.insert(one.end(), {(long long)get<0>(part(i)), (long long)get<1>(part(i))});
    };
    if constexpr (which == 'a') list(slice.partition_A(make_identity_tensor(Shape<_256, _16>{})));
    if constexpr (which == 'b') list(slice.partition_B(make_identity_tensor(Shape<Int<n>, _16>{})));
    if constexpr (which == 'c') list(slice.partition_C(make_identity_tensor(Shape<_256, Int<n>>{})));
    found += (rank ? ", " : "") + text(one);
  }
  return "[" + found + "]";
}

// The address in tensor memory of each sum, row by row; `Fragment`: of one block, or of two.
template <int m, int n, class Fragment = UMMA::tmem_frg_1sm<float>>
static std::string tensor_memory() {
  const auto sums = Fragment::make(Shape<Shape<Int<m>, Int<n>>, _1, _1>{});
  Numbers found;
  for (int row = 0; row < m; ++row)
    for (int column = 0; column < n; ++column)
      found.push_back(sums.layout()(make_coord(make_coord(row, column), 0, 0)));
  return text(found);
}

// Of each thread and each of its values of a load, the lane and the column.
template <class Operation>
static std::string tensor_load() {
  using Traits = Copy_Traits<Operation>;
  typename Traits::DstLayout values;
  Numbers found;
  for (int thread = 0; thread < size<0>(values); ++thread)
    for (int value = 0; value < size<1>(values) / 32; ++value) {
      const int bit = typename Traits::ValID{}(values(thread, value * 32));
      found.push_back(bit / TMEM::DP_b{});
      found.push_back(bit % TMEM::DP_b{} / 32);
    }
  return text(found);
}

// The same of a store, of each thread's values.
template <class Operation>
static std::string tensor_store() {
  using Traits = Copy_Traits<Operation>;
  typename Traits::SrcLayout values;
  Numbers found;
  for (int thread = 0; thread < size<0>(values); ++thread)
    for (int value = 0; value < size<1>(values) / 32; ++value) {
      const int bit = typename Traits::ValID{}(values(thread, value * 32));
      found.push_back(bit / TMEM::DP_b{});
      found.push_back(bit % TMEM::DP_b{} / 32);
    }
  return text(found);
}

// ---- tensor maps ----------------------------------------------------------------------------------

// The coordinates of each tile's first element, innermost axis first.
template <class Tensor>
static std::string starts(const Tensor& tiles) {  // of elements and tiles
  std::string found;
  for (int i = 0; i < size<1>(tiles); ++i) {
    Numbers one;
    for_each(flatten(tiles(0, i)), [&](auto number) { one.push_back((long long)number); });
    found += (i ? ", " : "") + text(one);
  }
  return "[" + found + "]";
}

// A matrix in boxes of so many rows and bytes of a row, swizzled by as many. `n`: rows, depth and elements from a row to the
// next; then, where the depth has a second axis outside of the first, its extent and stride.
template <class Operation, class T, int bytes, int rows>
static std::string tiled(const Numbers& n) {
  const auto memory = make_gmem_ptr(reinterpret_cast<T*>(shared));
  const auto smem = tile<T, bytes, rows>();
  using Columns = Int<bytes / sizeof(T)>;
  const auto boxes = [&](const auto& tensor, const auto& tiler) {
    const auto copy = make_tma_copy(Operation{}, tensor, smem, tiler, Int<1>{});
    const auto at = starts(zipped_divide(copy.get_tma_tensor(tensor.shape()), tiler));
    return "{" + handed_over + ", \"at\": " + at + "}";
  };
  if (n.size() == 3)
    return boxes(make_tensor(memory, make_shape((int)n[0], (int)n[1]), make_stride(n[2], Int<1>{})),
                 Shape<Int<rows>, Columns>{});
  return boxes(make_tensor(memory, make_shape((int)n[0], make_shape((int)n[1], (int)n[3])),
                           make_stride(n[2], make_stride(Int<1>{}, n[4]))),
               Shape<Int<rows>, Shape<Columns>>{});
}

// Pixels of an NHWC image that a convolution reads, in boxes of so many rows and 128 bytes of channels: as the main loop of
// CUTLASS's implicit GEMM has them loaded (cutlass/conv/collective/sm90_implicit_gemm_gmma_ss_warpspecialized.hpp).
template <class T, int rows>
static std::string im2col(const Numbers& v) {
  using namespace cutlass::conv;
  int at = 0;
  const auto next = [&] { return (int)v[at++]; };
  const auto two = [&] { return cute::array<int, 2>{next(), next()}; };
  cute::array<int, 4> image{}, filters{};
  for (int& extent : image) extent = next();
  for (int& extent : filters) extent = next();
  const auto lower = two(), upper = two(), steps = two(), dilation = two();
  const ConvProblemShape<Operator::kFprop, 2> problem(Mode::kCrossCorrelation, image, filters, lower, upper, steps, dilation, 1);
  const auto strides = make_stride(make_stride(problem.stride_A[2], problem.stride_A[1], problem.stride_A[0]), Int<1>{});
  const auto tensor = make_tensor(make_gmem_ptr(reinterpret_cast<T*>(shared)), make_layout(problem.get_shape_A(), strides));
  const auto smem = tile<T, 128, rows>();
  const auto copy = make_im2col_tma_copy(
      SM90_TMA_LOAD_IM2COL{}, tensor, smem, product_each(shape(smem)), Int<1>{},
      shape(collective::detail::compute_lower_corner_whd(problem)), shape(collective::detail::compute_upper_corner_whd(problem)),
      cute::reverse(shape(problem.lower_padding)), cute::reverse(shape(problem.upper_padding)),
      cute::reverse(shape(problem.traversal_stride)), shape(collective::detail::compute_lower_srt(problem)),
      cute::reverse(shape(problem.dilation)));
  const auto [m, n, k, l] = cutlass::conv::detail::get_linearized_problem_shape_MNKL(problem);
  using Tiler = Shape<Int<rows>, Shape<Int<128 / sizeof(T)>>>;
  const auto coordinates = copy.get_tma_tensor(make_shape(m, k));
  // where the convolution's pixels are for the filter's first tap
  std::string walk;
  for (int row = 0; row < m; ++row) {
    Numbers one;
    for_each(flatten(coordinates(row, 0)), [&](auto number) { one.push_back((long long)number); });
    walk += (row ? ", " : "") + text(one);
  }
  return "{" + handed_over + ", \"at\": " + starts(zipped_divide(coordinates, Tiler{})) + ", \"walk\": [" + walk + "]}";
}

// ---- questions ------------------------------------------------------------------------------------

using Answer = std::function<std::string(const Numbers&)>;
static std::map<std::string, Answer> answers;

static void fixed(const std::string& question, const std::function<std::string()>& answer) {
  answers[question] = [answer](const Numbers&) { return answer(); };
}

template <class T, int... n>
static void of_columns(const std::string& type, std::integer_sequence<int, n...>) {
  (fixed("sums " + type + " " + std::to_string(n), sums<T, n>), ...);
}

template <class T>
static void of_type(const std::string& type) {
  of_columns<T>(type, std::integer_sequence<int, 8, 16, 32, 48, 64, 96, 128, 192, 256>{});
  fixed("layout " + type + " 128", layout<T, 128>);
  fixed("layout " + type + " 64", layout<T, 64>);
  fixed("layout " + type + " 32", layout<T, 32>);
  fixed("layout " + type + " 16", layout<T, 16>);
  answers["descriptors " + type + " a"] = [](const Numbers& n) { return descriptors<T, 64, false, 128>((int)n[0]); };
  answers["descriptors " + type + " b"] = [](const Numbers& n) { return descriptors<T, 64, true, 64>((int)n[0]); };
  answers["load " + type + " 64"] = tiled<SM90_TMA_LOAD, T, 128, 64>;
  answers["im2col " + type] = im2col<T, 64>;
}

template <class T>
static void of_stored(const std::string& type) {
  answers["store " + type + " 128"] = tiled<SM90_TMA_STORE, T, 128, 64>;
  answers["store " + type + " 64"] = tiled<SM90_TMA_STORE, T, 64, 64>;
  answers["store " + type + " 32"] = tiled<SM90_TMA_STORE, T, 32, 64>;
}

template <class T>
static void of_tcgen05(const std::string& type) {
  answers["tcgen05 descriptors " + type + " a"] = [](const Numbers& n) { return tcgen05_descriptors<T, false>((int)n[0]); };
  answers["tcgen05 descriptors " + type + " b"] = [](const Numbers& n) { return tcgen05_descriptors<T, true>((int)n[0]); };
  fixed("tcgen05 instruction " + type + " 64 16", tcgen05_instruction<T, 64, 16>);
  fixed("tcgen05 instruction " + type + " 64 96", tcgen05_instruction<T, 64, 96>);
  fixed("tcgen05 instruction " + type + " 128 48", tcgen05_instruction<T, 128, 48>);
  fixed("tcgen05 instruction " + type + " 128 256", tcgen05_instruction<T, 128, 256>);
  fixed("tcgen05 instruction " + type + " 256 96", tcgen05_instruction<T, 256, 96>);
}

template <class T>
static void of_weights(const std::string& type) {
  answers["tcgen05 turned " + type] = [](const Numbers& n) { return tcgen05_turned<T>((int)n[0]); };
  fixed("tcgen05 turned instruction " + type, tcgen05_turned_instruction<T>);
  fixed("tcgen05 weights " + type, tcgen05_weights<T>);
}

// Operations by what the prelude calls them, with the name of CuTe's struct.
#define FRAGMENTS(name, operation) fixed("mma " name, [] { return mma<operation>(#operation); })
#define MATRICES(name, operation) fixed(name, [] { return copy<operation>(#operation); })

int main() {
  FRAGMENTS("m16n8k8_f16", SM75_16x8x8_F32F16F16F32_TN);
  FRAGMENTS("m16n8k16_f16", SM80_16x8x16_F32F16F16F32_TN);
  FRAGMENTS("m16n8k16_bf16", SM80_16x8x16_F32BF16BF16F32_TN);
  FRAGMENTS("m16n8k8_tf32", SM80_16x8x8_F32TF32TF32F32_TN);
  FRAGMENTS("m8n8k16_s8s8", SM80_8x8x16_S32S8S8S32_TN);
  FRAGMENTS("m8n8k16_u8s8", SM80_8x8x16_S32U8S8S32_TN);
  FRAGMENTS("m8n8k16_s8u8", SM80_8x8x16_S32S8U8S32_TN);
  FRAGMENTS("m8n8k16_u8u8", SM80_8x8x16_S32U8U8S32_TN);
  FRAGMENTS("m16n8k32_s8s8", SM80_16x8x32_S32S8S8S32_TN);
  FRAGMENTS("m16n8k32_u8s8", SM80_16x8x32_S32U8S8S32_TN);
  FRAGMENTS("m16n8k32_s8u8", SM80_16x8x32_S32S8U8S32_TN);
  FRAGMENTS("m16n8k32_u8u8", SM80_16x8x32_S32U8U8S32_TN);
  MATRICES("ldmatrix x1", SM75_U32x1_LDSM_N);
  MATRICES("ldmatrix x2", SM75_U32x2_LDSM_N);
  MATRICES("ldmatrix x4", SM75_U32x4_LDSM_N);
  MATRICES("ldmatrix x1_trans", SM75_U16x2_LDSM_T);
  MATRICES("ldmatrix x2_trans", SM75_U16x4_LDSM_T);
  MATRICES("ldmatrix x4_trans", SM75_U16x8_LDSM_T);
  MATRICES("stmatrix x4", SM90_U32x4_STSM_N);
  of_type<half_t>("f16");
  of_type<bfloat16_t>("bf16");
  of_type<tfloat32_t>("tf32");
  of_type<int8_t>("i8");
  of_stored<half_t>("f16");
  of_stored<float>("f32");
  of_tcgen05<half_t>("f16");
  of_tcgen05<bfloat16_t>("bf16");
  of_tcgen05<tfloat32_t>("tf32");
  fixed("tcgen05 of two a", tcgen05_of_two<48, 'a'>);
  fixed("tcgen05 of two b", tcgen05_of_two<48, 'b'>);
  fixed("tcgen05 of two c", tcgen05_of_two<48, 'c'>);
  fixed("tensor memory of two", tensor_memory<128, 48, UMMA::tmem_frg_2sm<float>>);
  of_weights<half_t>("f16");
  of_weights<bfloat16_t>("bf16");
  fixed("tensor row load 16", tensor_load<SM100_TMEM_LOAD_32dp32b16x>);
  fixed("tensor row load 32", tensor_load<SM100_TMEM_LOAD_32dp32b32x>);
  fixed("tensor row store 16", tensor_store<SM100_TMEM_STORE_32dp32b16x>);
  fixed("tensor row store 32", tensor_store<SM100_TMEM_STORE_32dp32b32x>);
  fixed("tensor memory 64", tensor_memory<64, 64>);
  fixed("tensor memory 128", tensor_memory<128, 64>);
  fixed("tensor load 16", tensor_load<SM100_TMEM_LOAD_16dp256b2x>);
  fixed("tensor load 32", tensor_load<SM100_TMEM_LOAD_16dp256b4x>);
  fixed("tensor load 64", tensor_load<SM100_TMEM_LOAD_16dp256b8x>);
  answers["load bf16 128"] = tiled<SM90_TMA_LOAD, bfloat16_t, 128, 128>;

  // what follows the operands of wgmma: sums are kept, operands neither negated nor, where it can be, transposed
  fixed("immediates", [] {
    using namespace SM90::GMMA;
    return text({(int)ScaleOut::One, (int)ScaleIn::One, (int)ScaleIn::One, (int)Major::K, (int)Major::K});
  });

  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line.substr(line.find(':') + 1));
    Numbers numbers;
    for (long long number; words >> number;) numbers.push_back(number);
    const auto found = answers.find(line.substr(0, line.find(':')));
    std::cout << (found == answers.end() ? "null" : found->second(numbers)) << std::endl;
  }
}
