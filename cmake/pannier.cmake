# Flags for all of our code, and the functions that declare a room (a folder of src/) and a test.

include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

# Found here so that every folder sees them. Who links to what is in the rooms' lists.
pkg_check_modules(PCRE2 REQUIRED GLOBAL IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED GLOBAL IMPORTED_TARGET libutf8proc)
pkg_check_modules(JANSSON REQUIRED GLOBAL IMPORTED_TARGET jansson)
pkg_check_modules(LIBEDIT REQUIRED GLOBAL IMPORTED_TARGET libedit)

add_library(pn_flags INTERFACE)
target_compile_definitions(pn_flags INTERFACE _GNU_SOURCE)
target_include_directories(pn_flags INTERFACE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# -ffp-contract=off: the float orders of docs/KERNELS are contract; a fused multiply-add is written.
# clang warns of fields left out inside designated initializers too, where gcc takes the zeros as
# meant.
target_compile_options(pn_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
    -Wcast-qual $<$<C_COMPILER_ID:Clang>:-Wno-missing-field-initializers>
    -ffp-contract=off -fno-math-errno $<$<BOOL:${PN_WERROR}>:-Werror>)
if(PN_SANITIZE)
    # Asserts are on whatever the build type: cmake's own Release has NDEBUG.
    # Instrumented code hides from gcc what it needs for these two warnings; plain builds give them.
    target_compile_options(pn_flags INTERFACE -fsanitize=${PN_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all -UNDEBUG
        $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>
        $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_link_options(pn_flags INTERFACE -fsanitize=${PN_SANITIZE})
endif()
target_link_libraries(pn_flags INTERFACE Threads::Threads m)

# cmocka's macros convert and cast freely. Linked after pn_flags, whose warnings it takes back.
add_library(pn_test_flags INTERFACE)
target_compile_options(pn_test_flags INTERFACE -Wno-conversion -Wno-cast-qual)

# pn_room(NAME SOURCES files... [LIBS external targets...])
# One OBJECT library a folder, called pn_NAME. What a room may include is checked by
# scripts/check_includes.py; objects are put together by pn_library.
function(pn_room name)
    cmake_parse_arguments(R "" "" "SOURCES;LIBS" ${ARGN})
    add_library(pn_${name} OBJECT ${R_SOURCES})
    target_link_libraries(pn_${name} PUBLIC pn_flags ${R_LIBS})
    set_property(TARGET pn_${name} PROPERTY PN_ROOM_LIBS ${R_LIBS})
endfunction()

# pn_library(TARGET NAME rooms...)
# libNAME out of the rooms' objects, and what those link to.
function(pn_library target name)
    add_library(${target})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name}
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
    foreach(room IN LISTS ARGN)
        target_sources(${target} PRIVATE $<TARGET_OBJECTS:pn_${room}>)
        get_property(libs TARGET pn_${room} PROPERTY PN_ROOM_LIBS)
        target_link_libraries(${target} PRIVATE pn_flags ${libs})
    endforeach()
    install(TARGETS ${target}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

# pn_test_program(NAME SOURCES files... ROOMS rooms...)
# A cmocka program linked to the rooms it names.
function(pn_test_program name)
    cmake_parse_arguments(T "" "" "SOURCES;ROOMS" ${ARGN})
    add_executable(${name} ${T_SOURCES})
    target_link_libraries(${name} PRIVATE pn_flags ${PN_CMOCKA} ${T_ROOMS} pn_test_flags)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${name} PRIVATE
        PN_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
        PN_TEST_SHARED="${PROJECT_SOURCE_DIR}/../shared")
endfunction()

# pn_test_command(NAME LABEL kind COMMAND words... [TIMEOUT seconds])
# Any command as a test: a script, or a test program with its arguments. Exit code 77 means skipped,
# and it says why. A cross build has no scripts: they read the source, which other builds do, or
# start the program by themselves, without the emulator.
function(pn_test_command name)
    cmake_parse_arguments(T "" "LABEL;TIMEOUT" "COMMAND" ${ARGN})
    list(GET T_COMMAND 0 program)
    if(CMAKE_CROSSCOMPILING AND NOT TARGET ${program})
        return()
    endif()
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 300)
    endif()
    add_test(NAME ${name} COMMAND ${T_COMMAND})
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABEL}" SKIP_RETURN_CODE 77
        TIMEOUT ${T_TIMEOUT} ENVIRONMENT "PN_STATE_DIR=") # nothing is left in the user's folders
    if(PN_SANITIZE)
        # A size that no machine has is refused with NULL, as by the plain allocator.
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
            "ASAN_OPTIONS=allocator_may_return_null=1;TSAN_OPTIONS=allocator_may_return_null=1"
            "UBSAN_OPTIONS=print_stacktrace=1")
    endif()
endfunction()

# pn_test(NAME LABEL kind SOURCES files... ROOMS rooms... [ARGS args...] [TIMEOUT seconds])
# A test program that runs once.
function(pn_test name)
    cmake_parse_arguments(T "" "LABEL;TIMEOUT" "SOURCES;ROOMS;ARGS" ${ARGN})
    pn_test_program(${name} SOURCES ${T_SOURCES} ROOMS ${T_ROOMS})
    pn_test_command(${name} LABEL ${T_LABEL} TIMEOUT ${T_TIMEOUT} COMMAND ${name} ${T_ARGS})
endfunction()
