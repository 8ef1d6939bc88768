package node

import (
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fileperm"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/certs"
)

// FileProblem is something wrong with a file that a setting names, or with the parameters of a URL.
type FileProblem struct {
	Setting string
	Err     error
	Warning bool // whether a node starts nevertheless
}

// CheckFiles returns the problems that a node with this configuration would find at its start. It checks certificates,
// files with secrets, blob_url, the addresses of notice_from and alert_to, and the files of destinations, DNS providers
// and root certificates. It opens no database and creates nothing.
func CheckFiles(c config.Config) (all []FileProblem) {
	all = checkSenders(c)
	if err := blob.CheckURL(c.BlobURL); err != nil {
		all = append(all, FileProblem{Setting: "blob_url", Err: err})
	}
	if err := readDestinations(c).err; err != nil {
		for _, p := range problemsOf(err) {
			all = append(all, FileProblem{Setting: "destinations_file", Err: p})
		}
	}
	if _, err := readDNSProviders(c); err != nil {
		for _, p := range problemsOf(err) {
			all = append(all, FileProblem{Setting: "dns_providers_file", Err: p})
		}
	}
	if _, err := readMarkRoots(c); err != nil {
		all = append(all, FileProblem{Setting: "bimi_roots_file", Err: err})
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
	return append(all, exposedFiles(c)...)
}

// checkSenders returns the problems of notice_from and of the addresses of alert_to that package config does not find.
// A node that sends no reports starts nevertheless.
func checkSenders(c config.Config) (all []FileProblem) {
	if c.NoticeFrom != "" {
		if _, err := message.ParseFrom(c.NoticeFrom); err != nil {
			all = append(all, FileProblem{Setting: "notice_from", Err: fmt.Errorf("%q: %w", c.NoticeFrom, err),
				Warning: !sendsTLSReports(c) && !sendsDMARCReports(c)})
		}
	}
	for _, to := range c.AlertTo {
		if strings.Contains(string(to), "://") {
			continue
		}
		if _, err := message.ParseAddress(string(to)); err != nil {
			all = append(all, FileProblem{Setting: "alert_to", Err: fmt.Errorf("%q: %w", string(to), err), Warning: true})
		}
	}
	return all
}

// exposedFiles returns a warning for each file with a secret that other users can read or change.
func exposedFiles(c config.Config) (all []FileProblem) {
	for _, f := range c.SecretFiles() {
		if mode := fileperm.Exposed(f.Path); mode != 0 {
			all = append(all, FileProblem{Setting: f.Setting, Warning: true, Err: fmt.Errorf("other users of this machine can "+
				"read or change %s (mode %04o): run `chmod g-w,o= %s`; if it was exposed, its secret is too", f.Path, mode, f.Path)})
		}
	}
	return all
}

// warnOfExposedFiles logs the files with secrets that other users can read or change.
func (n *Node) warnOfExposedFiles(c config.Config) {
	for _, p := range exposedFiles(c) {
		n.Log.Warn(p.Setting + ": " + p.Err.Error())
	}
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
