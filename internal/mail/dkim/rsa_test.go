package dkim

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"slices"
	"sync"
	"testing"
)

// The fastest RSA signer produces the same signatures as Go's own implementation.
func TestFastestSigner(t *testing.T) {
	t.Parallel()
	for _, bits := range []int{1024, 2048, 3072} {
		private, err := rsa.GenerateKey(rand.Reader, bits)
		if err != nil {
			t.Fatal(err)
		}
		signer, err := fastest(private)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				digest := sha256.Sum256([]byte{byte(i)})
				want, err := rsa.SignPKCS1v15(nil, private, crypto.SHA256, digest[:])
				if err != nil {
					t.Error(err)
				}
				got, err := signer.Sign(rand.Reader, digest[:], crypto.SHA256)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%d bits: another signature, %v", bits, err)
				}
			})
		}
		all.Wait()
	}
}
