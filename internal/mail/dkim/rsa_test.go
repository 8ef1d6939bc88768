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
		signer := fastest(private)
		signsAsGo(t, private, signer)
	}
}

// signsAsGo compares signatures of many goroutines with those of Go's own implementation.
func signsAsGo(t *testing.T, private *rsa.PrivateKey, signer crypto.Signer) {
	t.Helper()
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
				t.Errorf("%d bits: another signature, %v", private.N.BitLen(), err)
			}
		})
	}
	all.Wait()
}

// The chosen implementation is the one that was measured to be faster, and a program without libcrypto has no choice.
func TestChosenRSA(t *testing.T) {
	t.Parallel()
	c := ChosenRSA()
	switch {
	case c.Implementation == "Go" && c.Go == 0 && c.Libcrypto == 0:
	case c.Implementation == "Go" && c.Go > 0 && c.Libcrypto > c.Go/2:
	case c.Implementation == "libcrypto" && c.Libcrypto > 0 && c.Libcrypto < c.Go:
	default:
		t.Errorf("chose %+v", c)
	}
	if again := ChosenRSA(); again != c {
		t.Errorf("chose %+v and then %+v", c, again)
	}
}
