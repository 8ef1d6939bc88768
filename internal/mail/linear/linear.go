// Package linear tests that the work of every mail parser is proportional to the input size, for any input. The package
// contains only tests.
//
// The test counts work instead of measuring time. The test rebuilds itself, using the -overlay flag of the go command,
// with instrumented copies of the parsers and their libraries. In an instrumented copy, each function call and each
// loop iteration adds one to a counter. A search implemented in assembly in the standard library adds one for each byte
// that it reads. The Go runtime counts the allocated bytes. Production code contains no counters, and new libraries are
// instrumented without further configuration.
//
// Operations that compare, hash or move bytes within existing memory are not counted.
package linear
