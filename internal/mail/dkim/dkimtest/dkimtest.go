// Package dkimtest provides RSA keys for tests that need domains but do not test key generation. Generating an RSA key
// takes a tenth of a second, which used to be most of the run time of tests that create domains.
package dkimtest

import (
	_ "embed"
	"encoding/pem"
	"sync"
	"sync/atomic"

	"github.com/postrider/postrider/internal/mail/dkim"
)

//go:embed keys.pem
var file []byte

var (
	keys = sync.OnceValues(parse)
	next atomic.Uint32
)

// RSA is a substitute for dkim.GenerateRSA that cycles through a fixed list of keys. The list has eight keys, so
// consecutive domains have different keys.
func RSA() (*dkim.Key, error) {
	all, err := keys()
	if err != nil {
		return nil, err
	}
	return all[int(next.Add(1))%len(all)], nil
}

func parse() (all []*dkim.Key, err error) {
	for b, rest := pem.Decode(file); b != nil; b, rest = pem.Decode(rest) {
		k, err := dkim.ParseKey(b.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}
