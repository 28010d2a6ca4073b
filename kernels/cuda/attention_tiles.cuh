// Tiles in shared memory, fragments in registers and the tensor core instruction m16n8k16, for
// 16-bit types. Inside one warp, lane = 4 * row + pair: a lane holds rows `row` and `row + 8` of an
// accumulator and columns 2 * pair, 2 * pair + 1 of each group of eight.
#ifndef TRAINCTL_KERNELS_CUDA_ATTENTION_TILES_CUH_
#define TRAINCTL_KERNELS_CUDA_ATTENTION_TILES_CUH_

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace trainctl::cuda::attention {

template <typename T>
struct HalfWord;  // two values of T in one register

template <>
struct HalfWord<__nv_bfloat16> {
  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  static __device__ __forceinline__ float2 Unpack(uint32_t word) {
    return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&word));
  }
  static __device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

template <>
struct HalfWord<__half> {
  static __device__ __forceinline__ uint32_t Pack(float low, float high) {
    const __half2 v = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
  static __device__ __forceinline__ float2 Unpack(uint32_t word) {
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  }
  static __device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
};

__device__ __forceinline__ void CopyAsync16(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(present ? 16 : 0));
}
__device__ __forceinline__ void CopyAsync4(uint32_t to, const void* from, bool present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(to), "l"(from),
               "r"(present ? 4 : 0));
}
__device__ __forceinline__ void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::); }
// Waits until at most kPending groups of this thread's copies are on their way.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Rows of kD 16-bit values, of which 16-byte chunks are permuted by row so that neither a column of
// chunks nor a row meets itself in a bank.
template <int kD>
struct Tile {
  static constexpr int kChunks = kD / 8;
  static constexpr int kRowBytes = kD * 2;

  static __device__ __forceinline__ uint32_t Offset(int row, int chunk) {
    const int turn = kChunks >= 8 ? row & 7 : (row >> 1) & 3;
    return static_cast<uint32_t>(row * kRowBytes + ((chunk ^ turn) << 4));
  }

  // Starts copying rows [first, first + kRows) of a matrix of `rows` rows; those that are not there
  // become zero. `from` points at row 0, `stride` is in elements.
  template <int kRows, int kThreads, typename T>
  static __device__ __forceinline__ void Load(uint32_t tile, const T* from, int64_t stride,
                                              int first, int rows) {
    static_assert(kRows * kChunks % kThreads == 0);
#pragma unroll
    for (int n = 0; n < kRows * kChunks / kThreads; ++n) {
      const int i = static_cast<int>(threadIdx.x) + n * kThreads;
      const int row = i / kChunks, chunk = i % kChunks;
      const bool present = first + row < rows;
      const int64_t source = present ? first + row : 0;
      CopyAsync16(tile + Offset(row, chunk), from + source * stride + chunk * 8, present);
    }
  }

  static __device__ __forceinline__ void Matrices(uint32_t address, uint32_t (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
  static __device__ __forceinline__ void MatricesTransposed(uint32_t address, uint32_t (&r)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }

  // The left operand: rows [row, row + 16), columns [16 step, 16 step + 16).
  static __device__ __forceinline__ void Left(uint32_t tile, int row, int step, uint32_t (&a)[4]) {
    const int lane = threadIdx.x & 31;
    Matrices(tile + Offset(row + (lane & 15), 2 * step + (lane >> 4)), a);
  }
  // The right operand of X · tileᵀ: b[0], b[1] are for tile rows [row, row + 8), b[2], b[3] for the
  // next eight; columns [16 step, 16 step + 16) are summed over.
  static __device__ __forceinline__ void RightOfTransposed(uint32_t tile, int row, int step,
                                                           uint32_t (&b)[4]) {
    const int lane = threadIdx.x & 31;
    Matrices(tile + Offset(row + (lane & 7) + ((lane >> 4) << 3), 2 * step + ((lane >> 3) & 1)), b);
  }
  // The right operand of X · tile: rows [row, row + 16) are summed over; b[0], b[1] are for columns
  // [8 chunk, 8 chunk + 8), b[2], b[3] for the next eight.
  static __device__ __forceinline__ void Right(uint32_t tile, int row, int chunk,
                                               uint32_t (&b)[4]) {
    const int lane = threadIdx.x & 31;
    MatricesTransposed(tile + Offset(row + (lane & 15), chunk + (lane >> 4)), b);
  }
};

// Writes a warp's kD / 8 accumulators, times a factor for rows `row` and `row + 8`, into 16 rows of
// a tile that no other warp uses.
template <typename T, int kD>
__device__ __forceinline__ void StoreAccumulators(uint32_t tile, int first_row,
                                                  const float (&acc)[kD / 8][4], float low,
                                                  float high) {
  const int lane = threadIdx.x & 31, row = lane >> 2, pair = lane & 3;
#pragma unroll
  for (int n = 0; n < kD / 8; ++n) {
    const uint32_t top = HalfWord<T>::Pack(acc[n][0] * low, acc[n][1] * low);
    const uint32_t bottom = HalfWord<T>::Pack(acc[n][2] * high, acc[n][3] * high);
    const uint32_t a = tile + Tile<kD>::Offset(first_row + row, n) + pair * 4;
    const uint32_t b = tile + Tile<kD>::Offset(first_row + row + 8, n) + pair * 4;
    asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(a), "r"(top) : "memory");
    asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(b), "r"(bottom) : "memory");
  }
}

// Copies 16 rows of a tile to rows [first, first + 16) of a matrix of `rows` rows, by one warp.
template <typename T, int kD>
__device__ __forceinline__ void WriteRows(uint32_t tile, int tile_row, T* to, int64_t stride,
                                          int first, int rows) {
  constexpr int kChunks = kD / 8;
#pragma unroll
  for (int n = 0; n < 16 * kChunks / 32; ++n) {
    const int i = (static_cast<int>(threadIdx.x) & 31) + n * 32;
    const int row = i / kChunks, chunk = i % kChunks;
    if (first + row >= rows) continue;
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(tile + Tile<kD>::Offset(tile_row + row, chunk))
                 : "memory");
    *reinterpret_cast<uint4*>(to + (first + row) * stride + chunk * 8) = v;
  }
}

}  // namespace trainctl::cuda::attention

#endif  // TRAINCTL_KERNELS_CUDA_ATTENTION_TILES_CUH_
