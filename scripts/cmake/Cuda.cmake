# CUDA is used where a toolkit is found and never required. TRAINCTL_WITH_CUDA says which it is; the
# folders of GPU code exist only with it.
#
# A build for one's own machine compiles one architecture. A release compiles more of them, and PTX
# for GPUs that came later: -DTRAINCTL_CUDA_ARCHITECTURES="80-real;86-real;89-real;90"
set(TRAINCTL_CUDA AUTO CACHE STRING "GPU code: AUTO (if there is a CUDA toolkit), ON or OFF")
set_property(CACHE TRAINCTL_CUDA PROPERTY STRINGS AUTO ON OFF)
set(TRAINCTL_CUDA_ARCHITECTURES 90 CACHE STRING "Compute capabilities to compile for, as CMake names them")
set(least_toolkit 12.1)  # C++20, and lists of tensors as arguments of a kernel (32 KB)

set(TRAINCTL_WITH_CUDA OFF)
if(NOT TRAINCTL_CUDA STREQUAL OFF)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(TRAINCTL_WITH_CUDA ON)
  elseif(NOT TRAINCTL_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "TRAINCTL_CUDA is ON, but there is no nvcc that works; name one by CUDACXX, or see CMakeFiles/CMakeError.log")
  endif()
endif()

if(TRAINCTL_WITH_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${TRAINCTL_CUDA_ARCHITECTURES})
  # Linked by trainctl_cuda_library, statically: the driver is all that a machine has to have.
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  if(CCACHE_PROGRAM)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  enable_language(CUDA)
  # nvcc runs the C++ compiler, which breaks when its own folders are given to it as others'.
  list(APPEND CMAKE_CUDA_IMPLICIT_INCLUDE_DIRECTORIES ${CMAKE_CXX_IMPLICIT_INCLUDE_DIRECTORIES})
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS least_toolkit)
    message(FATAL_ERROR "CUDA ${CMAKE_CUDA_COMPILER_VERSION} was found, and ${least_toolkit} or later is needed; "
                        "update it, or build for CPUs with -DTRAINCTL_CUDA=OFF")
  endif()
  find_package(CUDAToolkit REQUIRED)
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for architectures ${CMAKE_CUDA_ARCHITECTURES}")
  # Not -Wconversion: the compiler's own part of a source does not stand it.
  target_compile_options(trainctl_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-fPIE>)
  if(TRAINCTL_WERROR)
    target_compile_options(trainctl_options INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
else()
  message(STATUS "No CUDA: building for CPUs")
endif()

# trainctl_cuda_library(NAME …): a trainctl_library of a folder that exists only with CUDA. SOURCES
# may be .cc and .cu.
function(trainctl_cuda_library name)
  trainctl_library(${name} ${ARGN})
  target_link_libraries(${name} PUBLIC CUDA::cudart_static)
endfunction()

# trainctl_add_cuda_tests(FOLDER): the tests of such a folder. Without CUDA they count as registered.
function(trainctl_add_cuda_tests folder)
  if(TRAINCTL_WITH_CUDA)
    add_subdirectory(${folder})
  else()
    file(GLOB_RECURSE tests ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*_test.cc)
    set_property(GLOBAL APPEND PROPERTY TRAINCTL_REGISTERED_TESTS ${tests})
  endif()
endfunction()
