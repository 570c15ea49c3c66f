# Precompiled headers for host builds with g++: parsing Kokkos and GoogleTest is a third to a half of most compilations.
# One per kind of target, shared by all targets of that kind. Sources still name what they include; builds without check it.
#   device         the standard library and Kokkos
#   test_host      the standard library and GoogleTest
#   test_device    all three
option(MINIPIPE_PCH "precompile the headers that most sources include (g++, not for CUDA)" ON)
if(MINIPIPE_PCH AND (NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR Kokkos_ENABLE_CUDA OR CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper"))
  set(MINIPIPE_PCH OFF)
endif()

# ccache refuses precompiled headers unless told that macros given on the command line and the times of headers may be trusted:
# their contents are compared in any case, and no source uses __TIME__.
if(MINIPIPE_PCH AND CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
                                  CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
                                  ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

function(minipipe_precompile target kind)
  if(NOT MINIPIPE_PCH)
    return()
  endif()
  set(holder minipipe_pch_${kind})
  if(NOT TARGET ${holder})
    set(headers
        <algorithm> <array> <chrono> <cmath> <cstdint> <filesystem> <fstream> <functional> <iostream> <limits> <map> <memory>
        <numeric> <optional> <set> <sstream> <string> <utility> <vector>)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/pch.cpp CONTENT "// Only there to have its headers compiled.\n" @ONLY)
    add_library(${holder} OBJECT ${PROJECT_BINARY_DIR}/generated/pch.cpp)
    target_link_libraries(${holder} PRIVATE minipipe_options)
    # Without it the preprocessor forgets the precompiled header, and ccache with it.
    target_compile_options(${holder} PRIVATE -fpch-preprocess)
    if(kind MATCHES "^test_")
      list(APPEND headers <gmock/gmock.h> <gtest/gtest.h>)
      target_link_libraries(${holder} PRIVATE GTest::gtest GTest::gmock)
      target_compile_options(${holder} PRIVATE -O1)
    endif()
    if(kind MATCHES "device$")
      list(APPEND headers <Kokkos_Core.hpp>)
      target_link_libraries(${holder} PRIVATE Kokkos::kokkos)
    endif()
    target_precompile_headers(${holder} PRIVATE ${headers})
  endif()
  # One that cannot be used costs time, nothing else. With one, g++ 12 also sees copies of impossible lengths in std::string.
  target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-error=invalid-pch -Wno-stringop-overflow)
  target_precompile_headers(${target} REUSE_FROM ${holder})
endfunction()
