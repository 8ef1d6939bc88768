// Package linear tests that every mail parser does work in proportion to its input, for any input. Package linear
// contains only tests.
//
// The test counts work instead of measuring time. The test rebuilds itself with instrumented copies of the parsers and
// of the libraries that they use, by an overlay of the go command. In an instrumented copy, each function call and each
// loop iteration adds one to a counter. Each search in the standard library's assembly code adds one for each byte that
// it reads. The runtime counts the allocated bytes. Production code contains no counters, and new libraries are
// instrumented without further configuration.
//
// Comparing, hashing and moving bytes within existing memory is not counted.
package linear
