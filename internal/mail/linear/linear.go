// Package linear holds every parser of mail to work in proportion to its input, whatever that is. It is tests alone.
//
// Work is counted, not timed: the test builds itself anew with the parsers, and the libraries below them, changed by
// an overlay of the go command, so that each call of a function and each round of a loop counts one, and each search
// of the standard library's assembler one for each octet that it looks at. Octets that are allocated are counted by
// the runtime. Nothing of it is in the program, and a parser or a library that is new is counted without being told.
//
// What is not counted: comparing, hashing and moving octets within memory that exists.
package linear
