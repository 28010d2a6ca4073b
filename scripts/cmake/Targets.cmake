# Code of tests is compiled fast rather than made fast. What g++ warns of by following values is
# wrong too often at this level.
set(TRAINCTL_TEST_OPTIONS $<$<CONFIG:Release>:-O1>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  list(APPEND TRAINCTL_TEST_OPTIONS
    -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict -Wno-stringop-overflow)
endif()
include(Precompile)

# trainctl_library(NAME SOURCES a.cc … DEPS other … [OWN_OPTIONS])
# One target per folder. DEPS are other folders' targets or third-party targets; the allowed
# arrows are in runtime/README.md and scripts/check proves them on the include lines.
# OWN_OPTIONS: the folder sets compile options of its own, with which no precompiled header fits.
function(trainctl_library name)
  cmake_parse_arguments(A "OWN_OPTIONS" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC trainctl_options ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS})
  if(A_OWN_OPTIONS)
    return()
  elseif("${A_DEPS}" MATCHES "trainctl_(grpc|rpc|proto|client|node)(;|$)")
    trainctl_use_precompiled(${name} rpc)
  else()
    trainctl_use_precompiled(${name} base)
  endif()
endfunction()

# What a user runs, without the tests: cmake --build build/release --target programs
add_custom_target(programs)

# trainctl_program(NAME DIR bin|libexec SOURCES … DEPS …)
# bin: a command users type; libexec: a program that only our programs start.
function(trainctl_program name)
  cmake_parse_arguments(A "" "DIR" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE trainctl_options ${A_DEPS})
  add_dependencies(programs ${name})
  if(A_DIR STREQUAL "libexec")
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/trainctl)
  else()
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endfunction()

# Seconds until a test counts as hanging: 120, or what it asks for; sanitizers take several times as long.
function(trainctl_patience wanted result)
  if(NOT wanted)
    set(wanted 120)
  endif()
  if(TRAINCTL_SANITIZE)
    math(EXPR wanted "4 * ${wanted}")
  endif()
  set(${result} ${wanted} PARENT_SCOPE)
endfunction()

# trainctl_test(NAME tier SOURCES … DEPS … [ARGS …])
# tier is the ctest label: unit scenario sim rpc process cluster peers.
function(trainctl_test name tier)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPS;ARGS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE trainctl_options ${A_DEPS} GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE
    TRAINCTL_BIN_DIR="${CMAKE_BINARY_DIR}/bin" TRAINCTL_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${TRAINCTL_TEST_OPTIONS})
  trainctl_use_precompiled(${name} test)
  trainctl_patience("${A_TIMEOUT}" A_TIMEOUT)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${A_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS ${tier} TIMEOUT ${A_TIMEOUT})
  foreach(source ${A_SOURCES})
    get_filename_component(path ${source} ABSOLUTE)
    set_property(GLOBAL APPEND PROPERTY TRAINCTL_REGISTERED_TESTS ${path})
  endforeach()
endfunction()

# trainctl_script_test(NAME tier SCRIPT file [ARGS …]): a test that is a Python program; exit
# status 77 means skipped, with the reason on its last line.
function(trainctl_script_test name tier)
  cmake_parse_arguments(A "" "SCRIPT;TIMEOUT" "ARGS" ${ARGN})
  trainctl_patience("${A_TIMEOUT}" A_TIMEOUT)
  add_test(NAME ${name} COMMAND /usr/bin/python3 ${CMAKE_CURRENT_SOURCE_DIR}/${A_SCRIPT} ${A_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS ${tier} TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 77
    ENVIRONMENT "TRAINCTL_BIN_DIR=${CMAKE_BINARY_DIR}/bin;TRAINCTL_TESTS_DIR=${CMAKE_BINARY_DIR}/tests;TRAINCTL_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
  set_property(GLOBAL APPEND PROPERTY TRAINCTL_REGISTERED_TESTS ${CMAKE_CURRENT_SOURCE_DIR}/${A_SCRIPT})
endfunction()

# A test file that no folder registers is a configure error.
function(trainctl_check_all_tests_registered)
  get_property(registered GLOBAL PROPERTY TRAINCTL_REGISTERED_TESTS)
  file(GLOB_RECURSE present ${PROJECT_SOURCE_DIR}/tests/*_test.cc ${PROJECT_SOURCE_DIR}/tests/*_test.py)
  foreach(file ${present})
    if(NOT file IN_LIST registered)
      message(FATAL_ERROR "Test file ${file} is not registered: add it to its folder's CMakeLists.txt")
    endif()
  endforeach()
endfunction()
