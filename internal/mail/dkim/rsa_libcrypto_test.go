//go:build cgo && libcrypto

package dkim

import (
	"crypto/rand"
	"crypto/rsa"
	"testing"
)

// libcrypto produces the same signatures as Go, also where it is not chosen.
func TestLibcryptoSigner(t *testing.T) {
	t.Parallel()
	for _, bits := range []int{1024, 2048, 3072} {
		private, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := newLibcryptoSigner(private)
		if err != nil {
			t.Fatal(err)
		}
		signsAsGo(t, private, signer)
	}
	if c := ChosenRSA(); c.Go == 0 || c.Libcrypto == 0 {
		t.Errorf("chose without a measurement: %+v", c)
	}
}
