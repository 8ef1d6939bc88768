// Package linear tests that every parser of mail does work in proportion to its input, for any input. It contains
// tests only.
//
// Work is counted, not timed. The test rebuilds itself with changed copies of the parsers and of the libraries below
// them, by an overlay of the go command. In these copies each call of a function and each iteration of a loop counts
// one, and each search by the standard library's assembler counts one for each byte that it reads. The runtime
// counts the allocated bytes. None of this is in the program, and new parsers and libraries are counted without
// further configuration.
//
// Comparing, hashing and moving bytes within existing memory is not counted.
package linear
