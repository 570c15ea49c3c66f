# minipipe_library(NAME FOLDERS dir.. LINKS lib.. [HOST_ONLY]): every .cpp below the folders becomes the static library
# minipipe_NAME. HOST_ONLY: it has no device code, so nvcc_wrapper hands it to the host compiler.
# minipipe_program(NAME FOLDERS dir.. LINKS lib..): the same for an executable.

add_library(minipipe_options INTERFACE)
target_include_directories(minipipe_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>
                                                      $<INSTALL_INTERFACE:include/minipipe>)
target_compile_options(
  minipipe_options
  INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual>>"
            # g++ 12 reports overlapping copies in std::string concatenation that do not exist.
            "$<BUILD_INTERFACE:$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>>"
            # A file that others are compiled with is taken for a header, whose types others would see.
            "$<BUILD_INTERFACE:$<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>>"
            "$<BUILD_INTERFACE:$<$<BOOL:${MINIPIPE_WERROR}>:-Werror>>")
# An installed minipipe is built with its own flags and leaves those of its users alone.
target_compile_features(minipipe_options INTERFACE cxx_std_20)
if(MINIPIPE_HOST_ARCH)
  if(Kokkos_ENABLE_CUDA)
    target_compile_options(minipipe_options INTERFACE "$<BUILD_INTERFACE:-Xcompiler;-march=${MINIPIPE_HOST_ARCH}>")
  else()
    target_compile_options(minipipe_options INTERFACE $<BUILD_INTERFACE:-march=${MINIPIPE_HOST_ARCH}>)
  endif()
endif()
# No errno and no traps from square roots and comparisons, or loops that have them are not vectorised. Values do not change.
# Contraction into fused multiply-adds depends on inlining; losses must not change with how code is cut into functions.
target_compile_options(minipipe_options INTERFACE -ffp-contract=off -fno-math-errno -fno-trapping-math)
# The back end is part of the types, so users of an installed minipipe need the definition, too.
if(MINIPIPE_DEVICE)
  string(TOUPPER ${MINIPIPE_DEVICE} device)
  if(NOT device MATCHES "^(SERIAL|OPENMP)$")
    message(FATAL_ERROR "MINIPIPE_DEVICE=${MINIPIPE_DEVICE} is no back end. Use serial or openmp, or leave it empty for Kokkos' default.")
  endif()
  if(NOT Kokkos_ENABLE_${device})
    message(FATAL_ERROR "MINIPIPE_DEVICE=${MINIPIPE_DEVICE}, but the Kokkos at ${Kokkos_DIR} was built without it. "
                        "Set Kokkos_ROOT to one with Kokkos_ENABLE_${device}=ON, or leave MINIPIPE_DEVICE empty.")
  endif()
  target_compile_definitions(minipipe_options INTERFACE MINIPIPE_DEVICE_${device})
endif()
if(MINIPIPE_SANITIZE)
  # Instrumented code hides from g++ 12 that values are set: its warnings about uninitialised ones are false there.
  target_compile_options(minipipe_options INTERFACE -Wno-maybe-uninitialized)
  target_compile_options(minipipe_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(minipipe_options INTERFACE -fsanitize=address,undefined)
endif()

include(Precompile)

function(minipipe_sources result)
  set(all)
  foreach(folder ${ARGN})
    file(GLOB_RECURSE found CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND all ${found})
  endforeach()
  set(${result} ${all} PARENT_SCOPE)
endfunction()

function(minipipe_library name)
  cmake_parse_arguments(arg "HOST_ONLY" "" "FOLDERS;LINKS" ${ARGN})
  minipipe_sources(sources ${arg_FOLDERS})
  if(sources)
    add_library(minipipe_${name} STATIC ${sources})
    target_link_libraries(minipipe_${name} PUBLIC minipipe_options ${arg_LINKS})
    if(arg_HOST_ONLY AND CMAKE_CXX_COMPILER MATCHES "nvcc_wrapper")
      target_compile_options(minipipe_${name} PRIVATE --host-only)
    endif()
    # Parsing is little of what compiling the others takes.
    if(NOT arg_HOST_ONLY)
      minipipe_precompile(minipipe_${name} device)
    endif()
  else()
    add_library(minipipe_${name} INTERFACE)
    target_link_libraries(minipipe_${name} INTERFACE minipipe_options ${arg_LINKS})
  endif()
endfunction()

function(minipipe_program name)
  cmake_parse_arguments(arg "" "" "FOLDERS;LINKS" ${ARGN})
  minipipe_sources(sources ${arg_FOLDERS})
  if(sources)
    add_executable(${name} ${sources})
    target_link_libraries(${name} PRIVATE minipipe_options ${arg_LINKS})
    minipipe_precompile(${name} device)
  endif()
endfunction()

# The git hash is read at build time, not at configure time: it names the sources that were compiled.
add_custom_target(
  minipipe_version
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DOUTPUT=${PROJECT_BINARY_DIR}/generated/minipipe_version.hpp
          -DVERSION=${PROJECT_VERSION} -P ${PROJECT_SOURCE_DIR}/cmake/WriteVersion.cmake
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/minipipe_version.hpp)
add_dependencies(minipipe_options minipipe_version)
