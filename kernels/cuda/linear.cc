#include "kernels/cuda/linear.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/symbols.h"

namespace trainctl::cuda {
namespace {

constexpr const char* kLibraries[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
constexpr int kRepetitions = 3;  // of a candidate, when candidates are measured

#define TRAINCTL_CUBLASLT_FUNCTIONS(F) \
  F(cublasLtCreate)                    \
  F(cublasLtDestroy)                   \
  F(cublasLtGetStatusString)           \
  F(cublasLtMatmul)                    \
  F(cublasLtMatmulAlgoGetHeuristic)    \
  F(cublasLtMatmulDescCreate)          \
  F(cublasLtMatmulDescDestroy)         \
  F(cublasLtMatmulDescSetAttribute)    \
  F(cublasLtMatrixLayoutCreate)        \
  F(cublasLtMatrixLayoutDestroy)       \
  F(cublasLtMatmulPreferenceCreate)    \
  F(cublasLtMatmulPreferenceDestroy) F(cublasLtMatmulPreferenceSetAttribute)

// The library's functions, found once and kept until the process ends.
struct Library {
#define TRAINCTL_MEMBER(name) decltype(&::name) name = nullptr;
  TRAINCTL_CUBLASLT_FUNCTIONS(TRAINCTL_MEMBER)
#undef TRAINCTL_MEMBER
};

absl::StatusOr<const Library*> OpenLibrary() {
  static const absl::StatusOr<const Library*> opened = []() -> absl::StatusOr<const Library*> {
    void* handle = nullptr;
    std::string why;
    for (const char* name : kLibraries) {
      handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle != nullptr) break;
      absl::StrAppend(&why, why.empty() ? "" : "; ", dlerror());
    }
    if (handle == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("open cuBLASLt, which multiplies matrices on a GPU: ", why,
                       "; install CUDA's libcublas or put its folder into LD_LIBRARY_PATH"));
    }
    auto library = std::make_unique<Library>();
    Symbols symbols(handle);
#define TRAINCTL_FIND(name) symbols.Required(#name, &library->name);
    TRAINCTL_CUBLASLT_FUNCTIONS(TRAINCTL_FIND)
#undef TRAINCTL_FIND
    if (!symbols.missing().empty()) {
      return absl::NotFoundError(absl::StrCat("open cuBLASLt: it has no function ",
                                              symbols.missing(), "; use CUDA 12 or newer"));
    }
    return library.release();
  }();
  return opened;
}

cudaDataType_t DataType(Dtype type) {
  switch (type) {
    case Dtype::kBfloat16:
      return CUDA_R_16BF;
    case Dtype::kFloat16:
      return CUDA_R_16F;
    case Dtype::kFloat32:
      break;
  }
  return CUDA_R_32F;
}

// One product as cuBLASLt sees it, columns first: d[m, n] = op(a) · op(b).
struct Product {
  const char* what;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  Dtype in, out;
  cublasLtEpilogue_t epilogue;
  auto Key() const { return std::tuple(m, n, k, transpose_a, transpose_b, in, out, epilogue); }
};

struct Operands {
  const void *a, *b;
  void* d;
  const void* bias;
  const void* aux;
  bool accumulate;
};

class CublasLt final : public Linear {
 public:
  CublasLt(const Library& library, const LinearOptions& options)
      : lib_(library), options_(options) {}
  ~CublasLt() override {
    for (auto& [key, plan] : plans_) Destroy(plan);
    if (handle_ != nullptr) lib_.cublasLtDestroy(handle_);
  }

  absl::Status Start() { return Check(lib_.cublasLtCreate(&handle_), "start cuBLASLt"); }

  absl::Status Forward(Dtype type, const LinearShape& s, const void* x, const void* w,
                       const void* bias, void* y, cudaStream_t stream) override {
    const auto epilogue = bias == nullptr ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
    return Run({"forward", s.out, s.rows, s.in, true, false, type, type, epilogue},
               {w, x, y, bias, nullptr, false}, stream);
  }

  absl::Status GeluForward(Dtype type, const LinearShape& s, const void* x, const void* w,
                           const void* bias, void* before, void* y, cudaStream_t stream) override {
    return Run({"forward with gelu", s.out, s.rows, s.in, true, false, type, type,
                CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
               {w, x, y, bias, before, false}, stream);
  }

  absl::Status BackwardInput(Dtype type, const LinearShape& s, const void* dy, const void* w,
                             void* dx, cudaStream_t stream) override {
    return Run({"gradient of the input", s.in, s.rows, s.out, false, false, type, type,
                CUBLASLT_EPILOGUE_DEFAULT},
               {w, dy, dx, nullptr, nullptr, false}, stream);
  }

  absl::Status GeluBackwardInput(Dtype type, const LinearShape& s, const void* dy, const void* w,
                                 const void* before, void* dx, cudaStream_t stream) override {
    return Run({"gradient through gelu", s.in, s.rows, s.out, false, false, type, type,
                CUBLASLT_EPILOGUE_DGELU},
               {w, dy, dx, nullptr, before, false}, stream);
  }

  absl::Status BackwardWeight(Dtype type, const LinearShape& s, const void* dy, const void* x,
                              Dtype gradient_type, void* dw, bool accumulate,
                              cudaStream_t stream) override {
    return Run({"gradient of the weight", s.in, s.out, s.rows, false, true, type, gradient_type,
                CUBLASLT_EPILOGUE_DEFAULT},
               {x, dy, dw, nullptr, nullptr, accumulate}, stream);
  }

 private:
  struct Plan {
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
  };

  absl::Status Check(cublasStatus_t status, absl::string_view what) const {
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(what, ": ", lib_.cublasLtGetStatusString(status)));
  }

  static std::string Name(const Product& p) {
    return absl::StrCat("matrix product, ", p.what, ", ", p.m, " x ", p.n, " x ", p.k);
  }

  void Destroy(Plan& plan) {
    if (plan.operation != nullptr) lib_.cublasLtMatmulDescDestroy(plan.operation);
    for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.d}) {
      if (layout != nullptr) lib_.cublasLtMatrixLayoutDestroy(layout);
    }
  }

  template <typename Value>
  absl::Status Set(const Plan& plan, cublasLtMatmulDescAttributes_t attribute, Value value) {
    return Check(
        lib_.cublasLtMatmulDescSetAttribute(plan.operation, attribute, &value, sizeof(value)),
        "describe a matrix product");
  }

  absl::Status Describe(const Product& p, Plan* plan) {
    const bool single = p.in == Dtype::kFloat32;
    const auto compute =
        single && options_.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    RETURN_IF_ERROR(Check(lib_.cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F),
                          "describe a matrix product"));
    RETURN_IF_ERROR(
        Set(*plan, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
    RETURN_IF_ERROR(
        Set(*plan, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
    RETURN_IF_ERROR(Set(*plan, CUBLASLT_MATMUL_DESC_EPILOGUE, p.epilogue));
    if (p.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || p.epilogue == CUBLASLT_EPILOGUE_DGELU) {
      RETURN_IF_ERROR(Set(*plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.m));
    }
    const auto layout = [&](cublasLtMatrixLayout_t* to, Dtype type, bool transposed, int64_t rows,
                            int64_t columns) {
      if (transposed) std::swap(rows, columns);
      return Check(lib_.cublasLtMatrixLayoutCreate(to, DataType(type), static_cast<uint64_t>(rows),
                                                   static_cast<uint64_t>(columns), rows),
                   "describe a matrix");
    };
    RETURN_IF_ERROR(layout(&plan->a, p.in, p.transpose_a, p.m, p.k));
    RETURN_IF_ERROR(layout(&plan->b, p.in, p.transpose_b, p.k, p.n));
    return layout(&plan->d, p.out, false, p.m, p.n);
  }

  // The pointers that are part of the operation.
  absl::Status Point(const Plan& plan, const Operands& o) {
    if (o.bias != nullptr) RETURN_IF_ERROR(Set(plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o.bias));
    if (o.aux != nullptr) {
      RETURN_IF_ERROR(Set(plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o.aux));
    }
    return absl::OkStatus();
  }

  absl::Status Multiply(const Product& p, const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                        const Operands& o, cudaStream_t stream) {
    const float one = 1, beta = o.accumulate ? 1.0f : 0.0f;
    const cublasStatus_t status = lib_.cublasLtMatmul(
        handle_, plan.operation, &one, o.a, plan.a, o.b, plan.b, &beta, o.d, plan.d, o.d, plan.d,
        &algorithm, options_.workspace, options_.workspace_bytes, stream);
    if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
    return Check(status, Name(p));
  }

  absl::StatusOr<std::vector<cublasLtMatmulHeuristicResult_t>> Propose(const Product& p,
                                                                       const Plan& plan) {
    cublasLtMatmulPreference_t preference = nullptr;
    RETURN_IF_ERROR(Check(lib_.cublasLtMatmulPreferenceCreate(&preference), Name(p)));
    const uint64_t bytes = options_.workspace_bytes;
    cublasStatus_t status = lib_.cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes));
    const int wanted = std::max(options_.candidates, 1);
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(wanted));
    int count = 0;
    if (status == CUBLAS_STATUS_SUCCESS) {
      status =
          lib_.cublasLtMatmulAlgoGetHeuristic(handle_, plan.operation, plan.a, plan.b, plan.d,
                                              plan.d, preference, wanted, found.data(), &count);
    }
    lib_.cublasLtMatmulPreferenceDestroy(preference);
    RETURN_IF_ERROR(Check(status, absl::StrCat(Name(p), ", find an algorithm")));
    if (count == 0) {
      return absl::UnimplementedError(
          absl::StrCat(Name(p), ": cuBLASLt has no algorithm for it on this GPU"));
    }
    found.resize(static_cast<size_t>(count));
    return found;
  }

  // Milliseconds of one run; infinite for an algorithm that does not run.
  absl::StatusOr<float> Measure(const Product& p, const Plan& plan,
                                const cublasLtMatmulAlgo_t& algorithm, const Operands& o,
                                cudaStream_t stream) {
    cudaEvent_t begin = nullptr, end = nullptr;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    float milliseconds = 0;
    absl::Status ran = Multiply(p, plan, algorithm, o, stream);
    cudaEventRecord(begin, stream);
    for (int i = 0; ran.ok() && i < kRepetitions; ++i)
      ran = Multiply(p, plan, algorithm, o, stream);
    cudaEventRecord(end, stream);
    const cudaError_t waited = cudaEventSynchronize(end);
    if (waited == cudaSuccess) cudaEventElapsedTime(&milliseconds, begin, end);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    if (waited != cudaSuccess) {
      return absl::InternalError(
          absl::StrCat(Name(p), ", measure an algorithm: ", cudaGetErrorString(waited)));
    }
    return ran.ok() ? milliseconds / kRepetitions : HUGE_VALF;
  }

  absl::Status Choose(const Product& p, const Operands& o, cudaStream_t stream, Plan* plan) {
    ASSIGN_OR_RETURN(const auto found, Propose(p, *plan));
    plan->algorithm = found[0].algo;
    // A measured sum would be added several times.
    if (found.size() == 1 || o.accumulate) return absl::OkStatus();
    float least = HUGE_VALF;
    for (const cublasLtMatmulHeuristicResult_t& candidate : found) {
      ASSIGN_OR_RETURN(const float time, Measure(p, *plan, candidate.algo, o, stream));
      if (time >= least) continue;
      least = time;
      plan->algorithm = candidate.algo;
    }
    return absl::OkStatus();
  }

  absl::Status Run(const Product& p, const Operands& o, cudaStream_t stream) {
    if (p.m == 0 || p.n == 0) return absl::OkStatus();
    const auto [found, made] = plans_.try_emplace(p.Key());
    Plan& plan = found->second;
    if (made) {
      absl::Status planned = Describe(p, &plan);
      if (planned.ok()) planned = Point(plan, o);
      if (planned.ok()) planned = Choose(p, o, stream, &plan);
      if (!planned.ok()) {
        Destroy(plan);
        plans_.erase(found);
        return planned;
      }
    } else {
      RETURN_IF_ERROR(Point(plan, o));
    }
    return Multiply(p, plan, plan.algorithm, o, stream);
  }

  const Library& lib_;
  const LinearOptions options_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<decltype(std::declval<Product>().Key()), Plan> plans_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Linear>> Linear::Open(const LinearOptions& options) {
  ASSIGN_OR_RETURN(const Library* library, OpenLibrary());
  auto linear = std::make_unique<CublasLt>(*library, options);
  RETURN_IF_ERROR(linear->Start());
  return linear;
}

}  // namespace trainctl::cuda
