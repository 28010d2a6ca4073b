// Runs the tests of the kernels, or says why it cannot.
//   gpu_kernels_test [--small] [--seed=N] [GoogleTest's flags]
// Exit status: 0 passed, 1 a test failed, 77 no GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "tests/gpu/kernels/arrays.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  uint64_t seed = std::random_device{}();
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) {
      trainctl::cuda::Small() = true;
    } else if (std::strncmp(argv[i], "--seed=", 7) == 0) {
      seed = std::strtoull(argv[i] + 7, nullptr, 10);
    } else {
      std::fprintf(stderr, "gpu_kernels_test: unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    std::printf("no GPU: %s\n", cudaGetErrorString(error));
    return 77;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  trainctl::cuda::Random().seed(seed);
  return RUN_ALL_TESTS();
}
