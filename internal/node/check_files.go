package node

import (
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/certs"
)

// FileProblem is something wrong with a file that a setting names, or with the parameters of a URL.
type FileProblem struct {
	Setting string
	Err     error
	Warning bool // whether a node starts nevertheless
}

// CheckFiles returns what a node that starts with the configuration would find wrong in certificates, the file of
// destinations and blob_url. It opens no database and creates nothing.
func CheckFiles(c config.Config) (all []FileProblem) {
	if err := blob.CheckURL(c.BlobURL); err != nil {
		all = append(all, FileProblem{Setting: "blob_url", Err: err})
	}
	if err := readDestinations(c).err; err != nil {
		for _, p := range problemsOf(err) {
			all = append(all, FileProblem{Setting: "destinations_file", Err: p})
		}
	}
	o := certs.Options{CertFile: c.TLSCertFile, KeyFile: c.TLSKeyFile, Web: webHosts(c), Mail: mailHosts(c)}
	if c.ACME {
		o.ACME = &certs.ACME{CAFile: c.ACMECAFile, Hook: c.ACMEDNSHook}
	}
	wrong, complaints := certs.CheckFiles(o)
	for _, e := range wrong {
		all = append(all, FileProblem{Setting: e.Setting, Err: e.Cause})
	}
	for _, e := range complaints {
		all = append(all, FileProblem{Setting: e.Setting, Err: e.Cause, Warning: true})
	}
	return all
}

// problemsOf returns the problems that an error of package config joins, or the error itself.
func problemsOf(err error) (all []error) {
	for _, p := range config.Problems(err) {
		all = append(all, p)
	}
	if all == nil {
		return []error{err}
	}
	return all
}
