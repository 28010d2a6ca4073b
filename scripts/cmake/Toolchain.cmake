option(TRAINCTL_WERROR "Treat compiler warnings as errors" ON)
set(TRAINCTL_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")

add_library(trainctl_options INTERFACE)
target_include_directories(trainctl_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(trainctl_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual>)
# What g++ warns of by following values is wrong too often at the level of a release build.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(trainctl_options INTERFACE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:
    -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread>)
endif()
# The compiler spends an eighth of its time collecting garbage that fits into memory anyway: with all of it
# kept, the largest source takes 0.9 GB instead of 0.75.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(trainctl_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>")
endif()
# One kind of code everywhere, so that one precompiled header fits: there is no shared library of ours.
target_compile_options(trainctl_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fPIE>)
if(TRAINCTL_WERROR)
  target_compile_options(trainctl_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  target_compile_options(trainctl_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
endif()
if(TRAINCTL_SANITIZE)
  set(flags -fsanitize=${TRAINCTL_SANITIZE} -fno-omit-frame-pointer)
  if(TRAINCTL_SANITIZE MATCHES undefined)
    list(APPEND flags -fno-sanitize-recover=undefined)
  endif()
  target_compile_options(trainctl_options INTERFACE "$<$<COMPILE_LANGUAGE:C,CXX>:${flags}>")
  target_link_options(trainctl_options INTERFACE ${flags})
elseif(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # Programs start faster and smaller without the C++ runtime's own relocations. Not where a shared
  # library throws exceptions at us (Gloo): two copies of the runtime cannot unwind through each
  # other. Such a library sets INTERFACE_TRAINCTL_SHARED_CXX_RUNTIME.
  target_link_options(trainctl_options INTERFACE
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:TRAINCTL_SHARED_CXX_RUNTIME>>>:-static-libstdc++>
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:TRAINCTL_SHARED_CXX_RUNTIME>>>:-static-libgcc>)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  # Without these two ccache does not cache what uses a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()
