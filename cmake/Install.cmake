# cmake --install: the program, the libraries with their headers, and the package `minipipe` for find_package(minipipe CONFIG).
#   minipipe::schedules   plans, policies, checker, simulator, executor: the C++20 standard library only
#   minipipe::data        token files
#   minipipe::core        everything else
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Two sets, so that a user of the schedules alone needs none of the packages that the rest needs.
if(MINIPIPE_DEVICE_FORMS)
  set(device_forms device_forms)
endif()
foreach(name options schedules data types linalg kernels optim model comm emulate deck io parallel train profile bench tune core ${device_forms})
  set_target_properties(minipipe_${name} PROPERTIES EXPORT_NAME ${name})
  if(name MATCHES "options|schedules")
    set(set minipipe-schedules)
  else()
    set(set minipipe-all)
  endif()
  install(TARGETS minipipe_${name} EXPORT ${set} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
install(TARGETS minipipe RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# Headers are included by their path in the sources: "schedules/plan/plan.hpp".
foreach(folder core data schedules)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/minipipe FILES_MATCHING PATTERN "*.hpp"
          PATTERN sample EXCLUDE)
endforeach()

# The packages of core and data are looked for by the same rules as in this build, and where this build found them.
get_filename_component(kokkos_prefix ${Kokkos_DIR}/../../.. ABSOLUTE)
get_filename_component(kernels_prefix ${KokkosKernels_DIR}/../../.. ABSOLUTE)
set(MINIPIPE_PREFIXES ${kokkos_prefix} ${kernels_prefix})
list(REMOVE_DUPLICATES MINIPIPE_PREFIXES)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/minipipeConfig.cmake.in ${PROJECT_BINARY_DIR}/minipipeConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/minipipe)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/minipipeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
foreach(set minipipe-schedules minipipe-all)
  install(EXPORT ${set} NAMESPACE minipipe:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/minipipe)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/minipipeConfig.cmake ${PROJECT_BINARY_DIR}/minipipeConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/Dependencies.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/minipipe)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
