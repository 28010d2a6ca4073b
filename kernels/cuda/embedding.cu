#include "kernels/cuda/embedding.h"

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/rows.cuh"

namespace trainctl::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kSegment = 32;  // sorted rows that a block adds up; part of the order of the sum

template <typename T, int N>
__global__ void __launch_bounds__(kWarp* kRowThreads)
    ForwardKernel(const int32_t* tokens, const T* token, const T* position, T* y,
                  EmbeddingShape shape) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.y;
  if (row >= shape.samples * shape.context) return;
  const int64_t id = tokens[row];
  const bool known = id >= 0 && id < shape.vocabulary;
  const T* from = token + (known ? id : 0) * shape.width;
  const T* place = position + row % shape.context * shape.width;
  for (int64_t c = threadIdx.x * N; c < shape.width; c += kWarp * N) {
    float v[N], p[N];
    Load<N>(from + c, v);
    Load<N>(place + c, p);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = known ? v[k] + p[k] : NAN;
    Store<N>(y + row * shape.width + c, v);
  }
}

// Tokens out of range sort behind all others.
__global__ void __launch_bounds__(kThreads)
    NumberRows(const int32_t* tokens, uint32_t* keys, int32_t* rows, int32_t n,
               uint32_t vocabulary) {
  const int32_t i = static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= n) return;
  keys[i] = min(static_cast<uint32_t>(tokens[i]), vocabulary);
  rows[i] = i;
}

// A block adds up kSegment rows in the order of their tokens. A token all of whose rows lie in the
// segment is added to dtoken. Of one that reaches over the segment's ends, the sum of the rows here
// goes to edges[segment][0] if it began before, or else to edges[segment][1].
template <typename T, int N, typename G>
__global__ void __launch_bounds__(kThreads)
    SumSegments(const uint32_t* tokens, const int32_t* rows, const T* dy, G* dtoken, float* edges,
                int32_t n, int64_t width, uint32_t vocabulary) {
  __shared__ uint32_t token[kSegment + 2];  // with the one before and the one behind
  __shared__ int32_t row[kSegment];
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSegment;
  const int count = static_cast<int>(min(static_cast<int64_t>(kSegment), n - begin));
  for (int i = threadIdx.x; i < kSegment + 2; i += kThreads) {
    const int64_t at = begin + i - 1;
    token[i] = at >= 0 && at < n ? tokens[at] : ~0u;
  }
  for (int i = threadIdx.x; i < count; i += kThreads) row[i] = rows[begin + i];
  __syncthreads();
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column >= width) return;
  float sum[N] = {};
  bool from_before = token[0] == token[1];
  constexpr int kUnroll = 8;
  for (int i = 0; i < count; i += kUnroll) {
    float v[kUnroll][N];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u < count) Load<N>(dy + row[i + u] * width + column, v[u]);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = i + u;
      if (at >= count) break;
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += v[u][k];
      const uint32_t current = token[at + 1];
      const bool goes_on = token[at + 2] == current;
      if (goes_on && at + 1 < count) continue;
      if (current < vocabulary) {
        if (from_before || goes_on) {
          Store<N>(edges + (2 * static_cast<int64_t>(blockIdx.x) + !from_before) * width + column,
                   sum);
        } else {
          float old[N];
          G* out = dtoken + current * width + column;
          Load<N>(out, old);
#pragma unroll
          for (int k = 0; k < N; ++k) old[k] += sum[k];
          Store<N>(out, old);
        }
      }
      from_before = false;
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] = 0;
    }
  }
}

// Of a token that begins in this segment and goes on in the next ones: adds up its edges.
template <int N, typename G>
__global__ void __launch_bounds__(kThreads)
    JoinSegments(const uint32_t* tokens, const float* edges, G* dtoken, int32_t n, int64_t width,
                 uint32_t vocabulary) {
  const int64_t segment = blockIdx.x;
  const int64_t last = segment * kSegment + kSegment - 1;
  if (last + 1 >= n || tokens[last] != tokens[last + 1]) return;
  const uint32_t current = tokens[last];
  const int64_t first = segment * kSegment;
  const bool from_before = tokens[first] == current && first > 0 && tokens[first - 1] == current;
  if (from_before || current >= vocabulary) return;
  // Tokens are sorted, so that the segments that begin with it are the next ones.
  int64_t end = segment + 1;
  for (;;) {
    const int64_t s = end + threadIdx.x;
    const int more = __syncthreads_count(s * kSegment < n && tokens[s * kSegment] == current);
    end += more;
    if (more < kThreads) break;
  }
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column >= width) return;
  float sum[N];
  Load<N>(edges + (2 * segment + 1) * width + column, sum);
#pragma unroll 8
  for (int64_t s = segment + 1; s < end; ++s) {
    float v[N];
    Load<N>(edges + 2 * s * width + column, v);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += v[k];
  }
  float old[N];
  G* out = dtoken + current * width + column;
  Load<N>(out, old);
#pragma unroll
  for (int k = 0; k < N; ++k) old[k] += sum[k];
  Store<N>(out, old);
}

template <typename T, int N, typename G>
__global__ void __launch_bounds__(kThreads)
    PositionKernel(const int32_t* tokens, const T* dy, G* dposition, EmbeddingShape shape) {
  const int64_t t = blockIdx.x;
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column >= shape.width) return;
  float sum[N] = {};
#pragma unroll 8
  for (int64_t s = 0; s < shape.samples; ++s) {
    const int64_t row = s * shape.context + t;
    const bool known = static_cast<uint32_t>(tokens[row]) < shape.vocabulary;
    float v[N];
    Load<N>(dy + row * shape.width + column, v);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += known ? v[k] : 0.0f;
  }
  float old[N];
  G* out = dposition + t * shape.width + column;
  Load<N>(out, old);
#pragma unroll
  for (int k = 0; k < N; ++k) old[k] += sum[k];
  Store<N>(out, old);
}

// Parts of the workspace, each on a boundary of 256 bytes.
struct Workspace {
  float* edges;
  uint32_t *keys, *sorted_keys;
  int32_t *rows, *sorted_rows;
  void* sort;
  size_t sort_bytes;
  int64_t bytes;
};

Workspace Divide(const EmbeddingShape& shape, void* base, int* bits) {
  const int64_t n = shape.rows();
  char* next = static_cast<char*>(base);
  const auto take = [&](int64_t bytes) {
    char* part = next;
    next += CeilDivide(bytes, 256) * 256;
    return part;
  };
  *bits = 1;
  while (*bits < 32 && shape.vocabulary >> *bits != 0) ++*bits;
  Workspace w{};
  w.edges = reinterpret_cast<float*>(take(2 * CeilDivide(n, kSegment) * shape.width * 4));
  w.keys = reinterpret_cast<uint32_t*>(take(n * 4));
  w.sorted_keys = reinterpret_cast<uint32_t*>(take(n * 4));
  w.rows = reinterpret_cast<int32_t*>(take(n * 4));
  w.sorted_rows = reinterpret_cast<int32_t*>(take(n * 4));
  cub::DeviceRadixSort::SortPairs(nullptr, w.sort_bytes, w.keys, w.sorted_keys, w.rows,
                                  w.sorted_rows, static_cast<int>(n), 0, *bits);
  w.sort = take(static_cast<int64_t>(w.sort_bytes));
  w.bytes = next - static_cast<char*>(base);
  return w;
}

// dtoken, of type G, from dy sorted by token.
template <typename T, typename G>
absl::Status TokenBackward(const int32_t* tokens, const T* dy, G* dtoken, void* workspace,
                           const EmbeddingShape& shape, cudaStream_t stream) {
  int bits;
  Workspace w = Divide(shape, workspace, &bits);
  const int32_t n = static_cast<int32_t>(shape.rows());
  const uint32_t vocabulary = static_cast<uint32_t>(shape.vocabulary);
  NumberRows<<<static_cast<unsigned>(CeilDivide(n, kThreads)), kThreads, 0, stream>>>(
      tokens, w.keys, w.rows, n, vocabulary);
  const absl::Status sorted =
      CudaStatus(cub::DeviceRadixSort::SortPairs(w.sort, w.sort_bytes, w.keys, w.sorted_keys,
                                                 w.rows, w.sorted_rows, n, 0, bits, stream),
                 absl::StrCat("sort ", n, " tokens"));
  if (!sorted.ok()) return sorted;
  WithVector<T>(shape.width, {dy, dtoken, workspace}, [&](auto count) {
    constexpr int N = decltype(count)::value;
    const dim3 grid(static_cast<unsigned>(CeilDivide(n, kSegment)),
                    static_cast<unsigned>(CeilDivide(shape.width, kThreads * N)));
    SumSegments<T, N, G><<<grid, kThreads, 0, stream>>>(w.sorted_keys, w.sorted_rows, dy, dtoken,
                                                        w.edges, n, shape.width, vocabulary);
    JoinSegments<N, G>
        <<<grid, kThreads, 0, stream>>>(w.sorted_keys, w.edges, dtoken, n, shape.width, vocabulary);
  });
  return LaunchStatus("EmbeddingBackward");
}

}  // namespace

absl::Status EmbeddingForward(Dtype type, const int32_t* tokens, const void* token,
                              const void* position, void* y, const EmbeddingShape& shape,
                              cudaStream_t stream) {
  if (shape.rows() == 0 || shape.width == 0) return absl::OkStatus();
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    WithVector<T>(shape.width, {token, position, y}, [&](auto n) {
      const unsigned grid = static_cast<unsigned>(CeilDivide(shape.rows(), kRowThreads));
      ForwardKernel<T, n.value><<<grid, dim3(kWarp, kRowThreads), 0, stream>>>(
          tokens, static_cast<const T*>(token), static_cast<const T*>(position), static_cast<T*>(y),
          shape);
    });
    return LaunchStatus("EmbeddingForward");
  });
}

int64_t EmbeddingWorkspace(const EmbeddingShape& shape) {
  int bits;
  return Divide(shape, nullptr, &bits).bytes;
}

absl::Status EmbeddingBackward(Dtype type, const int32_t* tokens, const void* dy,
                               Dtype gradient_type, void* dtoken, void* dposition, void* workspace,
                               const EmbeddingShape& shape, cudaStream_t stream) {
  if (shape.rows() == 0 || shape.width == 0) return absl::OkStatus();
  if (shape.rows() > INT32_MAX / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("EmbeddingBackward: ", shape.rows(), " rows, which is more than 2^30"));
  }
  return WithType(type, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    return WithGradientType<T>(gradient_type, [&](auto gradient_tag) {
      using G = typename decltype(gradient_tag)::Type;
      const T* from = static_cast<const T*>(dy);
      if (dposition != nullptr) {
        G* out = static_cast<G*>(dposition);
        WithVector<T>(shape.width, {dy, dposition}, [&](auto count) {
          constexpr int N = decltype(count)::value;
          const dim3 grid(static_cast<unsigned>(shape.context),
                          static_cast<unsigned>(CeilDivide(shape.width, kThreads * N)));
          PositionKernel<T, N, G><<<grid, kThreads, 0, stream>>>(tokens, from, out, shape);
        });
        if (absl::Status status = LaunchStatus("EmbeddingBackward"); !status.ok()) return status;
      }
      if (dtoken == nullptr) return absl::OkStatus();
      return TokenBackward<T, G>(tokens, from, static_cast<G*>(dtoken), workspace, shape, stream);
    });
  });
}

}  // namespace trainctl::cuda
