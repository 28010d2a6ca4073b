# Tests are compiled once and run for seconds.
set(TRAINCTL_TEST_OPTIONS $<$<CONFIG:Release>:-O0>)
include(Precompile)
# Several sources in one go, which parses headers and instantiates templates once for all of them.
# Where a developer compiles every change again (preset dev), single files are faster.
string(COMPARE EQUAL "${CMAKE_BUILD_TYPE}" Release united)
option(TRAINCTL_UNITY "Compile the sources of a folder together, thirty-two at a time"
       ${united})

# trainctl_library(NAME SOURCES a.cc … DEPS other … [HOT])
# One target per folder. DEPS are other folders' targets or third-party targets; the allowed
# arrows are in runtime/README.md and scripts/check proves them on the include lines.
# HOT: the folder computes, so that it is optimised in a release build; no precompiled header fits
# it.
function(trainctl_library name)
  cmake_parse_arguments(A "HOT" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC trainctl_options ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS})
  trainctl_unite(${name})
  if(A_HOT)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O3>)
  else()
    trainctl_precompile_for(${name} "${A_DEPS}")
  endif()
endfunction()

function(trainctl_unite target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${TRAINCTL_UNITY} UNITY_BUILD_BATCH_SIZE 32)
endfunction()

function(trainctl_precompile_for target deps)
  if("${deps}" MATCHES "trainctl_(grpc|rpc|proto|client|node|launcher)(;|$)")
    trainctl_use_precompiled(${target} rpc)
  else()
    trainctl_use_precompiled(${target} base)
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
  trainctl_precompile_for(${name} "${A_DEPS}")
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
  trainctl_unite(${name})
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

# trainctl_test_library(NAME SOURCES … DEPS …): what several test programs share.
function(trainctl_test_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC trainctl_options ${A_DEPS} GTest::gmock GTest::gtest)
  target_compile_definitions(${name} PRIVATE TRAINCTL_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  target_compile_options(${name} PRIVATE ${TRAINCTL_TEST_OPTIONS})
  trainctl_use_precompiled(${name} test)
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
