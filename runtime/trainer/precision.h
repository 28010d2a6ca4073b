// The arithmetic that a model is trained in.
#ifndef TRAINCTL_RUNTIME_TRAINER_PRECISION_H_
#define TRAINCTL_RUNTIME_TRAINER_PRECISION_H_

namespace trainctl {

enum class Precision {
  kAuto,  // what is best on the device
  kFp32,
  kTf32,  // float32, whose matrix products round their inputs to 10 bits
  kBf16,  // bfloat16 with float32 parameters and gradients
  kFp16,  // float16 with float32 parameters and gradients, and a scaled loss
};

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TRAINER_PRECISION_H_
