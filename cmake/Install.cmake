# cmake --install: the program, the built-in pair it runs without arguments, and the papers.
include(GNUInstallDirs)
if(TARGET triforce-bench)
  install(TARGETS triforce-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY data/models DESTINATION ${CMAKE_INSTALL_DATADIR}/triforce-bench)
  install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
