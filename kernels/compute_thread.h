// What a thread that calls the operations of this folder sets up once.
#ifndef TRAINCTL_KERNELS_COMPUTE_THREAD_H_
#define TRAINCTL_KERNELS_COMPUTE_THREAD_H_

namespace trainctl::ops {

// Lets matrix products use OMP_NUM_THREADS threads (1 if it is unset or not a positive number) and
// makes the calling thread treat denormal numbers as zero: the moments of a weight whose gradient
// stays zero decay into denormals, on which arithmetic is many times slower. Returns the number of
// threads.
int PrepareComputeThread();

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_COMPUTE_THREAD_H_
