package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/front/look"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/node/doctor/gather"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/delivery"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
	"github.com/postrider/postrider/internal/sending/domains"
)

const (
	// examineEvery is how often a node looks whether the installation must be examined.
	examineEvery = 5 * time.Minute
	// examineAge is the age of the last examination from which on the installation is examined again.
	examineAge = 24 * time.Hour
)

// Examination says what the command doctor examines.
type Examination struct {
	Version string
	Team    string       // id or name; the domains of this team only, or "" for those of all teams
	Domain  string       // this domain only
	From    *gather.From // the installation that looks from outside; may be nil
	// DataOnly restricts the report to findings about the database, files, disks and the secret key.
	DataOnly bool
}

// Examine examines an installation for a command. Examine also works if the database cannot be opened or if the secret
// key is missing or wrong, because these are findings. It neither migrates the database nor creates files. An error
// means that the team was not found.
func Examine(ctx context.Context, c config.Config, log *slog.Logger, x Examination) (doctor.Report, error) {
	s := sourcesOf(c)
	s.From = x.From
	s.DNS, s.DNSErr = resolve.NewDNS(c.DNSServers, c.DNSSECResolvers...)
	if s.DNSErr != nil {
		s.DNS = nil
	}
	if !strings.HasPrefix(c.BlobURL, "mem:") {
		s.Blobs = func(ctx context.Context) error { return probeBlobs(ctx, c.BlobURL) }
	}
	guard := publicGuard(c)
	s.Allowed = guard.Allowed
	if s.DB, s.DBErr = openExisting(ctx, c, log); s.DB != nil {
		defer s.DB.Close()
	}
	s.Keys, _, s.KeyErr = readKeyring(c, false)
	if s.DB != nil && s.KeyErr == nil {
		want, err := s.DB.Fact(ctx, db.FactKeyCheck)
		if err == nil {
			s.KeyErr = matches(s.Keys, c, want)
		}
	}
	if s.KeyErr != nil {
		s.Keys = nil
	}
	if s.DB != nil && s.DNS != nil && s.Keys != nil && s.DB.CheckProgram(ctx) == nil {
		// Certificates needs no other services to list what is stored.
		n := &Node{Config: c, Resources: &resources.Resources{Base: resources.Base{DB: s.DB, Keys: s.Keys, DNS: s.DNS,
			Guard: guard, Log: log}}}
		s.Certificates, s.TLSA = n.Certificates, n.tlsaFacts
	}
	switch {
	case x.Team != "" && s.DB == nil:
		return doctor.Report{}, fmt.Errorf("--team: %w", s.DBErr)
	case x.Team != "":
		t, err := teams.FindIn(ctx, s.DB.Reader, x.Team)
		if err != nil {
			return doctor.Report{}, fmt.Errorf("--team: %w", err)
		}
		s.Selection, s.Only = domains.Selection{TeamID: t.ID}, t.Name
	case x.Domain != "":
		s.Selection, s.Only = domains.Selection{Name: x.Domain}, x.Domain
	}
	r := doctor.NewReport(gather.Collect(ctx, s), x.Version)
	if x.DataOnly {
		r.KeepData()
	}
	return r, nil
}

// publicGuard returns a guard that allows public addresses only. Networks that the operator opens to webhooks
// (allow_networks) are neither public nor for other installations.
func publicGuard(c config.Config) *netguard.Guard {
	return netguard.New(netguard.Options{AllowLoopback: c.AllowLoopback, Networks: publicNetworks(c)})
}

func publicNetworks(c config.Config) netguard.Networks {
	return netguard.Networks{Deny: networks(c).Deny}
}

// sourcesOf returns what the configuration says about the things to examine.
func sourcesOf(c config.Config) gather.Sources {
	s := gather.Sources{Config: c, Place: Place(c), KeyPlace: keyFile(c), Domains: resourcesConfig(c).Domains}
	if c.SecretKey != "" {
		s.KeyPlace = "the setting secret_key"
	}
	for _, f := range diskFolders(c) {
		s.Folders = append(s.Folders, gather.Folder{Setting: f.setting, Path: f.path})
	}
	s.BlobPlace, _, _ = strings.Cut(c.BlobURL, "?")
	s.Relay = func(ctx context.Context, r config.Relay) error {
		return delivery.TryRelay(ctx, relayOf(r), c.Hostname)
	}
	s.Destinations = func() error { return readDestinations(c).err }
	if c.DMARCReports && c.NoticeFrom != "" && c.CheckAuthentication {
		s.DMARCSending = dmarcSending
	}
	return s
}

// dmarcSending returns what was counted today for DMARC reports.
func dmarcSending(ctx context.Context, r db.Reader) doctor.DMARCSending {
	w, err := dmarcreports.WaitingToday(ctx, r, db.Now())
	return doctor.DMARCSending{Messages: w.Messages, Domains: w.Domains, More: w.Domains == dmarcreports.WaitingMax,
		Err: err}
}

// probeBlobs stores and reads a small blob, and creates no folder.
func probeBlobs(ctx context.Context, blobURL string) error {
	store, err := blob.OpenExisting(ctx, blobURL)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Probe(ctx)
}

// openExisting opens the database of an installation, and creates none.
func openExisting(ctx context.Context, c config.Config, log *slog.Logger) (*db.DB, error) {
	if c.DatabaseURL == "" {
		if _, err := os.Stat(DatabaseURL(c)); errors.Is(err, fs.ErrNotExist) {
			return nil, errEmpty(c)
		} else if err != nil {
			return nil, fmt.Errorf("find the database: %w; run this command as the user of the node", err)
		}
	}
	d, err := db.Open(ctx, db.Options{URL: DatabaseURL(c), DirectURL: string(c.DatabaseDirectURL), Log: log, Beside: true})
	if err != nil {
		return nil, err
	}
	empty, err := d.IsEmpty(ctx)
	if err == nil && empty {
		err = errEmpty(c)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// examineDaily registers the daily examination. One node at a time makes it. An installation without real DNS records,
// as in development, is not examined.
func (n *Node) examineDaily() {
	if n.Config.TrustDomains {
		return
	}
	began := n.DB.Now()
	n.runner.Cron(jobs.Cron{Name: "doctor", Every: examineEvery, Run: func(ctx context.Context) error {
		return n.examineAgain(ctx, began)
	}})
}

// examineAgain examines the installation, and logs each failure, if the last examination was a day ago or before this
// node began.
func (n *Node) examineAgain(ctx context.Context, began time.Time) error {
	now := n.DB.Now()
	text, err := n.DB.Fact(ctx, db.FactExamined)
	if err != nil {
		return err
	}
	if last, err := time.Parse(time.RFC3339Nano, text); err == nil && last.After(began) && now.Sub(last) < examineAge {
		return nil
	}
	if err := n.DB.SetFact(ctx, db.FactExamined, now.Format(time.RFC3339Nano)); err != nil {
		return err
	}
	r := n.examine(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, f := range r.Worst(doctor.Failure) { // a line is the only copy of its finding
		n.Log.ErrorContext(lograte.Unlimited(ctx), "doctor: "+f.ID+" "+f.Subject, "meaning", f.Meaning, "advice", f.Advice)
	}
	n.Log.Info("doctor examined the installation", "failures", r.Counts[doctor.Failure], "warnings",
		r.Counts[doctor.Warning], "not_checked", r.Counts[doctor.NotChecked], "ok", r.Counts[doctor.OK])
	return nil
}

// examine examines the installation from this running node.
func (n *Node) examine(ctx context.Context) doctor.Report {
	c := *n.settings()
	s := sourcesOf(c)
	s.Blobs = n.Blobs.Probe
	s.DB, s.Keys, s.Allowed, s.Certificates = n.DB, n.Keys, publicGuard(c).Allowed, n.Certificates
	s.TLSA = n.tlsaFacts
	s.AuthorityPort = n.o.AuthorityPort
	s.DNS, s.DNSErr = resolve.NewDNS(c.DNSServers, c.DNSSECResolvers...)
	s.Port = func(setting string) string {
		return n.Port(map[string]string{"smtp_in_listen": PortInbound, "smtp_submit_listen": PortSubmit,
			"smtp_submits_listen": PortSubmits}[setting])
	}
	return doctor.NewReport(gather.Collect(ctx, s), n.o.Version)
}

// newDoctor registers the operations with which this installation proves that it is itself, and with which it looks at
// another one.
func (n *Node) newDoctor() {
	n.mux.HandleFunc("GET "+gather.ProofPath, n.prove)
	n.mux.Handle(look.Path, look.New(look.Options{Authenticate: n.api.Authenticate, Audit: n.Audit,
		Guard: n.strangers, DNS: n.DNS, Hostname: n.Config.Hostname, Roots: gather.Roots(n.Config.ACMECAFile),
		AnyLoopbackPort: n.Config.AllowLoopback, Log: n.Log}))
}

func isDoctor(path string) bool { return path == look.Path || path == gather.ProofPath }

// Limits of the length of a nonce.
const (
	nonceMin = 16
	nonceMax = 64
)

// prove answers with a text that only a node with the secret key of this installation can make.
func (n *Node) prove(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	nonce := r.URL.Query().Get("nonce")
	if len(nonce) < nonceMin || len(nonce) > nonceMax {
		wire.WriteError(w, fault.Invalidf("nonce", "The parameter `nonce` must have %d to %d characters.", nonceMin,
			nonceMax))
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, gather.Proof(n.Keys, nonce)[0])
}
