// Package linear tests that the work of every parser of mail is proportional to its input, for any input. It contains
// tests only.
//
// Work is counted, not timed. The test rebuilds itself with changed copies of the parsers and of the libraries below
// them, by an overlay of the go command. In these copies each call of a function and each iteration of a loop adds one
// to a counter. Each search by the standard library's assembler adds one for each byte that it reads. The runtime
// counts the allocated bytes. The program itself contains no counters, and new parsers and libraries are counted
// without further configuration.
//
// Comparing, hashing and moving bytes within existing memory is not counted.
package linear
