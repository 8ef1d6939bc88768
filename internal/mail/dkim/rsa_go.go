//go:build !cgo || !libcrypto

package dkim

import (
	"crypto"
	"crypto/rsa"
)

func chosenRSA() RSAChoice { return RSAChoice{Implementation: "Go"} }

// fastest returns the fastest available signer for the key: Go's own implementation.
func fastest(private *rsa.PrivateKey) crypto.Signer { return private }
