package dkim

import "time"

// RSAChoice says which implementation creates RSA signatures, and what was measured to choose it.
type RSAChoice struct {
	Implementation string // "Go" or "libcrypto"
	// Go and Libcrypto are the times of one signature with a key of 2048 bits. They are 0 in a program without libcrypto,
	// which has no choice.
	Go, Libcrypto time.Duration
}

// ChosenRSA returns the implementation that creates RSA signatures. In a program with libcrypto, the first call measures
// both implementations for some milliseconds, unless a key has been parsed before. The choice holds until the program
// ends.
func ChosenRSA() RSAChoice { return chosenRSA() }
