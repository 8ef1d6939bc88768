// Package node builds every part of Postrider once and runs them. The commands serve and dev run a node; commands beside
// a running node use the same parts without running them.
//
// # Invariants
//
// Parts are built from the lowest layer up: resources (package resources), then workers, protocols and jobs. Each gets
// the few settings that concern it; no package below this one knows the configuration. A node stops in the reverse
// order: listeners, the parts that claim work, the rest.
//
// # When it fails
//
// Open and Run return errors that name the setting to change. If one part of a running node ends with an error, Run stops
// the others and returns the error.
//
// # What it does not do
//
// It reads no flags, environment variables or signals; package node does.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/mcp"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/fileperm"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Options are the differences between nodes that no setting makes.
type Options struct {
	Version string // the release, which headers and documents show

	// Beside opens the database of a node that may be running, for a command. The parts are built and not run: the node
	// has no jobs and no protocols.
	Beside bool

	KeysConsent bool               // API keys may consent for their team, so that scripts need no browser
	Unsigned    bool               // emails are not signed, for measurements
	Loopback    bool               // direct delivery may connect to this machine, for measurements
	Trace       func(db.Statement) // called with each SQL statement; nil for none
}

// Node is one Postrider with all parts built and connected.
type Node struct {
	*resources.Resources
	workers
	Config config.Config

	o         Options
	mux       *http.ServeMux
	handler   http.Handler
	site      *web.Site
	developer *users.User      // visitors from this machine are this user, in development; nil otherwise
	limits    *teams.Limiter   // shared by the API and submission
	dns       resolve.Resolver // with a cache
	certs     *certificates
	ports     []mailPort // open listeners, which Run serves
	lock      *os.File
}

// Open builds a node. The caller must close it.
func Open(ctx context.Context, c config.Config, log *slog.Logger, o Options) (n *Node, err error) {
	n = &Node{Config: c, o: o}
	opened := n // a return of nil and an error sets n
	defer func() {
		if err != nil {
			opened.Close()
		}
	}()
	if err := PrepareFolder(c, log); err != nil {
		return nil, err
	}
	if c.DatabaseURL == "" && !o.Beside {
		if err := n.lockFolder(); err != nil {
			return nil, err
		}
	}
	base, err := openBase(ctx, c, log, o)
	n.Resources = &resources.Resources{Base: base}
	if err != nil {
		return nil, err
	}
	h := n.hooks()
	all, err := resources.New(base, resourcesConfig(c), h)
	if err != nil {
		return nil, err
	}
	n.Resources = all
	if err := n.checkOperator(ctx); err != nil {
		return nil, err
	}
	if err := n.newWorkers(h); err != nil {
		return nil, err
	}
	if o.Beside {
		return n, nil
	}
	if err := n.newProtocols(); err != nil {
		return nil, err
	}
	n.registerJobs()
	return n, nil
}

// openBase opens the database, which it migrates, and the blob store, and reads the keys. After an error, the result has
// what was opened before.
func openBase(ctx context.Context, c config.Config, log *slog.Logger, o Options) (b resources.Base, err error) {
	b = resources.Base{Log: log, Guard: netguard.New(netguard.Options{AllowLoopback: c.AllowLoopback,
		DenySelf: ownAddresses(c)})}
	if b.DB, err = db.Open(ctx, db.Options{URL: DatabaseURL(c), Log: log, Beside: o.Beside, Trace: o.Trace}); err != nil {
		return b, err
	}
	if c.MigrateOnStart || o.Beside {
		if _, err := b.DB.Migrate(ctx); err != nil {
			return b, err
		}
	}
	if b.Blobs, err = blob.Open(ctx, c.BlobURL); err != nil {
		return b, fmt.Errorf("open blob_url: %w", err)
	}
	if b.Keys, err = OpenKeyring(c); err != nil {
		return b, err
	}
	if b.DNS, err = resolve.NewDNS(c.DNSServers); err != nil {
		return b, fmt.Errorf("read dns_servers: %w", err)
	}
	return b, nil
}

// DatabaseURL returns the URL of the database: by default the file in data_dir.
func DatabaseURL(c config.Config) string {
	if c.DatabaseURL == "" {
		return filepath.Join(c.DataDir, "postrider.db")
	}
	return string(c.DatabaseURL)
}

// resourcesConfig returns the settings that concern the resources.
func resourcesConfig(c config.Config) resources.Config {
	regions := map[string]domains.Region{}
	for label := range c.Regions {
		regions[label] = domains.Region(c.Region(label))
	}
	return resources.Config{PublicURL: c.PublicURL, TrackingURL: c.TrackingURL, MaxSize: int64(c.AttachmentMax),
		AuditRetention: c.AuditRetention, Aliases: aliases(c.PublicURL),
		Trial:          teams.Quota{Daily: int64(c.TrialDaily), Monthly: int64(c.TrialMonthly)},
		GrantResources: []string{c.PublicURL, c.PublicURL + mcp.Path},
		Users: users.Config{PublicURL: c.PublicURL, OIDC: users.OIDCConfig{Issuer: c.OIDCIssuer,
			ClientID: c.OIDCClientID, ClientSecret: string(c.OIDCClientSecret), Name: c.OIDCName, Domains: c.OIDCDomains}},
		Domains: domains.Config{Default: domains.Region(c.Region("")), Regions: regions, Selector: c.DKIMSelector,
			SelectorEd25519: c.DKIMSelectorEd25519, CAAIssuer: c.CAAIssuer, SandboxDomains: c.SandboxDomains,
			SandboxSend: c.SandboxSend, TrustDomains: c.TrustDomains, LegacyAliases: c.LegacyAliases,
			Hosts: publicHosts(c), ManagedDomain: c.ManagedDomain}}
}

// PrepareFolder creates data_dir and restricts its files to their owner. It logs the files that others could read until
// now, because their content may be known.
func PrepareFolder(c config.Config, log *slog.Logger) error {
	for _, name := range []string{"", "postrider.db", "secret.key", "dev.key", "lock"} {
		path := filepath.Join(c.DataDir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			log.Warn("others could read or change this file until now; its content may be known to them", "path", path,
				"mode", fmt.Sprintf("%04o", info.Mode().Perm()))
		}
		if err := fileperm.Mend(path); err != nil {
			return fmt.Errorf("prepare data_dir: %w", err)
		}
	}
	if err := fileperm.Dir(c.DataDir); err != nil {
		return fmt.Errorf("prepare data_dir: %w", err)
	}
	return nil
}

// checkOperator returns an error if operator_team names no team, because mail to the operator would have no recipient.
func (n *Node) checkOperator(ctx context.Context) error {
	if n.Config.OperatorTeam == "" || n.o.Beside {
		return nil
	}
	_, err := n.Teams.Operator(ctx, n.Config.OperatorTeam)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return fmt.Errorf("operator_team: there is no team with the id %s; `postrider teams list` shows those that are",
			n.Config.OperatorTeam)
	}
	return err
}

// OpenKeyring returns the keys of secret_key. Without that setting it reads data_dir/secret.key, which it creates if it
// does not exist.
func OpenKeyring(c config.Config) (*keyring.Keyring, error) {
	if c.SecretKey != "" {
		return keyring.Parse(string(c.SecretKey))
	}
	return keyring.LoadOrCreate(filepath.Join(c.DataDir, "secret.key"))
}

// lockFolder locks data_dir against a second node. With SQLite, the job runner relies on being the only one.
func (n *Node) lockFolder() error {
	path := filepath.Join(n.Config.DataDir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock of data_dir: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return fmt.Errorf("another node uses the folder %s; stop it, or set database_url to share a PostgreSQL database",
			n.Config.DataDir)
	}
	n.lock = f
	return nil
}

// Has reports whether the node has a role.
func (n *Node) Has(role string) bool { return slices.Contains(n.Config.Roles, role) }

// Close closes what Open opened. Run must have returned.
func (n *Node) Close() {
	n.closePorts()
	if n.Resources != nil && n.DB != nil {
		n.DB.Close()
	}
	if n.Resources != nil && n.Blobs != nil {
		n.Blobs.Close()
	}
	if n.lock != nil {
		n.lock.Close()
	}
}
