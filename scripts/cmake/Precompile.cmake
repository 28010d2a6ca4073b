# Headers that most sources parse, compiled once for each kind of target. Half of the time of a build
# goes into parsing abseil, gRPC and GoogleTest.
#   base   folders without gRPC
#   rpc    folders that link gRPC
#   test   test programs
option(TRAINCTL_PRECOMPILE "Precompile the headers that most sources include" ON)

set(base_headers <algorithm> <functional> <map> <memory> <optional> <string> <utility> <variant> <vector>
  <absl/status/statusor.h> <absl/strings/match.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h>)
set(rpc_headers ${base_headers} <grpcpp/grpcpp.h> <grpcpp/support/client_callback.h>
  <grpcpp/support/server_callback.h>)
set(test_headers ${base_headers} <gmock/gmock.h> <gtest/gtest.h>)

foreach(kind base rpc test)
  add_library(trainctl_${kind}_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/precompiled.cc)
  target_link_libraries(trainctl_${kind}_headers PRIVATE trainctl_options)
  if(TRAINCTL_PRECOMPILE)
    target_precompile_headers(trainctl_${kind}_headers PRIVATE ${${kind}_headers})
  endif()
endforeach()
target_link_libraries(trainctl_test_headers PRIVATE GTest::gmock GTest::gtest)
target_compile_options(trainctl_test_headers PRIVATE ${TRAINCTL_TEST_OPTIONS})

function(trainctl_use_precompiled target kind)
  if(TRAINCTL_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM trainctl_${kind}_headers)
  endif()
endfunction()
