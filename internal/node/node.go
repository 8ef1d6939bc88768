// Package node builds and runs all of Postrider's services. The commands serve and dev run a node. Other commands call
// the same services without running a node.
//
// # Invariants
//
// Services are built from the lowest layer up: first resources (package resources), then workers, protocols and jobs.
// Each service gets only the settings that it needs, because packages in lower layers do not import the configuration.
// A node first stops its listeners, then the services that claim jobs, and then all other services.
//
// # Failures
//
// Open and Run return errors that name the setting to change. If one of a running node's services ends with an error,
// Run stops the other services and returns that error.
//
// # Out of scope
//
// Package node does not read flags, environment variables or signals, because only package cli reads them.
package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/api"
	"github.com/postrider/postrider/internal/front/docsite"
	"github.com/postrider/postrider/internal/front/mcp"
	"github.com/postrider/postrider/internal/front/oauth"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/fileperm"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/certs"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/partitions"
	"github.com/postrider/postrider/internal/sending/domains"
)

// Options holds properties of a node that the configuration cannot change.
type Options struct {
	Version string // the program's version, for headers and the OpenAPI document

	// Beside is set by commands that may open an installation's database while a node is running. If Beside is set, the
	// node cannot run, because it has no jobs and no protocols. Open then creates no installation: it refuses a
	// database without tables.
	Beside bool

	KeysConsent bool // API keys may consent to OAuth grants, so that tests do not need a browser
	Unsigned    bool // emails are not signed, for measurements
	// AuthorityPort is the port at which authoritative name servers are queried; 0 means 53. It is for tests.
	AuthorityPort uint16
	Loopback      bool               // direct delivery may connect to loopback addresses, for measurements
	Trace         func(db.Statement) // called for each SQL statement; may be nil

	// Commands are the pages of the documentation that describe the commands.
	Commands []docsite.Page

	// LogLevel is the level of the node's log, which Reload sets; nil means that it does not change.
	LogLevel *slog.LevelVar
}

// Node is a Postrider process, with all services built and connected.
type Node struct {
	*resources.Resources
	workers
	Config config.Config

	o         Options
	mux       *http.ServeMux
	api       *api.API
	handler   http.Handler
	site      *web.Site
	developer *developer       // signs browsers in by a link; nil unless the node is for development
	outboxKey string           // development key, which opens the outbox from other machines; may be empty
	limits    *teams.Limiter   // shared by the API and SMTP submission
	dns       resolve.Resolver // with a cache
	// dnssecProblem says what the last self-check found wrong with the servers of dnssec_resolvers; nil if nothing.
	dnssecProblem atomic.Pointer[string]
	dnssecChecked atomic.Bool // whether a self-check has run
	dnssecWorked  atomic.Bool // whether one has found a server that validates signatures
	broken        brokenPolicies
	// tlsaProblem is the problem that the last comparison of TLSA records with certificates found. It is "" if there
	// was none, and nil before the first comparison.
	tlsaProblem atomic.Pointer[string]
	oauth       *oauth.Server
	certs       *certs.Manager // nil for a command
	https       net.Listener   // open HTTPS listener that Run will serve; may be nil
	portsMu     sync.Mutex     // guards ports
	ports       []mailPort     // open SMTP listeners that Run will serve; read them by openPorts
	lock        *Lock

	live         atomic.Pointer[config.Config] // settings as of the last reload; see settings
	reloading    sync.Mutex                    // held while settings are replaced
	destinations destinations
	strangers    *netguard.Guard // of connections that other installations or recipient domains ask for

	pauseAsked chan string            // requests to pause for the end of a move
	paused     atomic.Bool            // whether the node is paused for the end of a move
	movedTo    atomic.Pointer[string] // where the installation was moved while the node was running

	observation
}

// Open builds a node. The caller must close the node.
func Open(ctx context.Context, c config.Config, log *slog.Logger, o Options) (*Node, error) {
	n := &Node{Config: c, o: o}
	if err := n.open(ctx, log); err != nil {
		n.Close()
		return nil, explain(c, err)
	}
	return n, nil
}

// open builds all services. If open returns an error, the caller must close the node, because some services may already
// be open.
func (n *Node) open(ctx context.Context, log *slog.Logger) (err error) {
	if err := PrepareFolder(n.Config, log, !n.o.Beside); err != nil {
		return err
	}
	if n.Config.DatabaseURL == "" && !n.o.Beside {
		lock, err := LockFolder(n.Config)
		if err != nil {
			return err
		}
		n.lock = lock
	}
	if !n.o.Beside {
		if n.observation, err = n.newObservation(log); err != nil {
			return err
		}
	}
	base, err := openBase(ctx, n.Config, log, n.o, n.observeUpdate())
	n.Resources = &resources.Resources{Base: base} // Close closes base even after an error
	if err != nil {
		return err
	}
	if err := n.openDestinations(); err != nil {
		return err
	}
	if !n.o.Beside {
		n.warnOfExposedFiles(n.Config)
	}
	h := n.hooks()
	c := resourcesConfig(n.Config)
	if err := addAdvice(n.Config, &c); err != nil && !n.o.Beside {
		return err
	}
	all, err := resources.New(base, c, h)
	if err != nil {
		return err
	}
	n.Resources = all
	if err := n.checkOperator(ctx); err != nil {
		return err
	}
	if err := n.warnOfMissingKeys(ctx); err != nil {
		return err
	}
	if err := n.newWorkers(h); err != nil || n.o.Beside {
		return err
	}
	if err := errors.Join(n.newCertificates(), n.newProtocols()); err != nil {
		return err
	}
	if err := n.warnOfMove(ctx); err != nil {
		return err
	}
	n.listenForMove()
	n.registerJobs()
	return nil
}

// errEmpty returns the error for a database without tables.
func errEmpty(c config.Config) error {
	return fmt.Errorf("the database is empty; this command used %s: correct data_dir or database_url, or run `postrider "+
		"migrate` or `postrider serve` to create the tables", Place(c))
}

// Place names the settings that say where the database is, without a password.
func Place(c config.Config) string {
	if c.DatabaseURL == "" {
		return fmt.Sprintf("data_dir = %q and no database_url", c.DataDir)
	}
	u, err := url.Parse(string(c.DatabaseURL))
	if err != nil {
		return "database_url"
	}
	return fmt.Sprintf("database_url, which leads to the database %q at %s", strings.TrimPrefix(u.Path, "/"), u.Host)
}

// openBase opens and migrates the database, opens the blob store and reads the keys. If an error occurs, b contains
// everything that was opened before the error, so that the caller can close it.
func openBase(ctx context.Context, c config.Config, log *slog.Logger, o Options,
	onUpdate db.UpdateObserver) (b resources.Base, err error) {
	own, err := ownAddresses(c)
	if err != nil && !o.Beside { // commands ignore this error, because they do not listen
		return b, err
	}
	b = resources.Base{Log: log, AuthorityPort: o.AuthorityPort, Guard: netguard.New(netguard.Options{AllowLoopback: c.AllowLoopback, DenySelf: own,
		Networks: networks(c)})}
	if b.DB, err = db.Open(ctx, db.Options{URL: DatabaseURL(c), DirectURL: string(c.DatabaseDirectURL), Log: log,
		Beside: o.Beside, Trace: o.Trace, OnUpdate: onUpdate}); err != nil {
		return b, err
	}
	empty, err := b.DB.IsEmpty(ctx)
	switch {
	case err != nil:
		return b, err
	case empty && o.Beside:
		return b, errEmpty(c)
	case !empty:
		if err := checkMoved(ctx, b.DB, c); err != nil {
			return b, err
		}
	}
	if c.MigrateOnStart || o.Beside {
		if _, err := b.DB.Migrate(ctx); err != nil {
			return b, err
		}
	} else if err := b.DB.CheckProgram(ctx); err != nil {
		return b, err
	}
	if !o.Beside {
		// Without new partitions, the default partitions take all rows.
		if err := partitions.New(b.DB, partitions.Length(c.PartitionBy), log).Make(ctx); err != nil {
			log.Error("partitions could not be made; the node starts without them", "error", err)
		}
	}
	open := blob.Open
	if o.Beside {
		open = blob.OpenExisting // a command in a wrong folder leaves nothing there
	}
	if b.Blobs, err = open(ctx, c.BlobURL); err != nil {
		return b, fmt.Errorf("open blob_url: %w", err)
	}
	if b.Keys, err = OpenKeyring(ctx, b.DB, c, !o.Beside, log); err != nil {
		return b, err
	}
	// A move to this database may have begun since the first look. It begins only if no check value of a key is stored.
	if err := checkMoved(ctx, b.DB, c); err != nil {
		return b, err
	}
	if b.DNS, err = resolve.NewDNS(c.DNSServers, c.DNSSECResolvers...); err != nil {
		return b, fmt.Errorf("read dns_servers and dnssec_resolvers: %w", err)
	}
	return b, nil
}

// checkMoved returns an error if the installation was moved to another database, or if it is the target of a move that
// is not complete. Emails that such an installation accepted would be lost.
func checkMoved(ctx context.Context, d *db.DB, c config.Config) error {
	to, err := d.Fact(ctx, db.FactMovedTo)
	if err != nil {
		return err
	}
	if to != "" {
		return fmt.Errorf("this installation was moved to %s, and does not start any more: set database_url to that database "+
			"(this program used %s)", to, Place(c))
	}
	move, err := d.Fact(ctx, db.FactMoveID)
	if err == nil && move != "" && !d.Alone() {
		err = fmt.Errorf("the move of an installation to this database (%s) is not complete: run `postrider promote` again, "+
			"with the settings of the old installation", Place(c))
	}
	return err
}

// DatabaseURL returns the URL of the database. The default is a file in data_dir.
func DatabaseURL(c config.Config) string {
	if c.DatabaseURL == "" {
		return filepath.Join(c.DataDir, "postrider.db")
	}
	return string(c.DatabaseURL)
}

// resourcesConfig returns the settings that package resources needs.
func resourcesConfig(c config.Config) resources.Config {
	regions := map[string]domains.Region{}
	for label := range c.Regions {
		regions[label] = domains.Region(c.Region(label))
	}
	var servers []resources.NameServer
	if c.DNSZone != "" {
		for _, x := range c.NameServers() {
			servers = append(servers, resources.NameServer(x))
		}
	}
	return resources.Config{PublicURL: c.PublicURL, NameServers: servers, PolicyHost: policyHost(c),
		TrackingURL: c.TrackingURL, MaxSize: int64(c.AttachmentMax),
		FeedbackSender: c.FeedbackSenderID,
		AuditRetention: c.AuditRetention, Aliases: aliases(c.PublicURL),
		Trial:          teams.Quota{Daily: int64(c.TrialDaily), Monthly: int64(c.TrialMonthly)},
		GrantResources: []string{c.PublicURL, c.PublicURL + mcp.Path},
		Users: users.Config{PublicURL: c.PublicURL, OIDC: users.OIDCConfig{Issuer: c.OIDCIssuer,
			ClientID: c.OIDCClientID, ClientSecret: string(c.OIDCClientSecret), Name: c.OIDCName, Domains: c.OIDCDomains}},
		DomainReports: resources.DomainReports{Host: c.ReportHost, OwnHosts: []string{c.Hostname},
			Retention: c.ReportRetention},
		Domains: domains.Config{Default: domains.Region(c.Region("")), Regions: regions, Selector: c.DKIMSelector,
			SelectorEd25519: c.DKIMSelectorEd25519, CAAIssuer: c.CAAIssuer, SandboxDomains: c.SandboxDomains,
			SandboxSend: c.SandboxSend, TrustDomains: c.TrustDomains, LegacyAliases: c.LegacyAliases,
			Rotation: time.Duration(c.DKIMRotation) * 24 * time.Hour, RetrySpan: retrySpan(c),
			CheckHosts: checksHosts(c), DNSZone: c.DNSZone, DNSNames: c.DNSNames,
			DNSAddresses: c.DNSAddresses, DNSContact: c.ZoneContact(),
			Hosts: publicHosts(c), ManagedDomain: c.ManagedDomain}}
}

// retrySpan returns how long the delivery of an email is tried.
func retrySpan(c config.Config) (span time.Duration) {
	for _, wait := range c.RetrySchedule {
		span += wait
	}
	return span
}

// RestoreFolder is the name of the folder in data_dir that has the files of an unfinished restore.
const RestoreFolder = "restoring"

// PrepareFolder makes the files in data_dir readable only by their owner, and creates data_dir if create is true.
// PrepareFolder logs a warning for each file that other users could read before, because they may have read secrets. If
// a restore into the folder was not finished, PrepareFolder returns an error.
func PrepareFolder(c config.Config, log *slog.Logger, create bool) error {
	if unfinished := filepath.Join(c.DataDir, RestoreFolder); c.DatabaseURL == "" && fileperm.Exists(unfinished) {
		return fmt.Errorf("data_dir: a restore into %s was not finished: run `postrider restore` again, which begins anew; "+
			"or delete %s, if the folder has the database of another installation", c.DataDir, unfinished)
	}
	for _, name := range []string{"", "postrider.db", "secret.key", "dev.key", "lock"} {
		path := filepath.Join(c.DataDir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
			log.Warn("other users of this machine could read or change this file until now", "path", path,
				"mode", fmt.Sprintf("%04o", info.Mode().Perm()))
		}
		if err := fileperm.Mend(path); err != nil {
			return fmt.Errorf("prepare data_dir: %w", err)
		}
	}
	if !create {
		return nil
	}
	if err := fileperm.Dir(c.DataDir); err != nil {
		return fmt.Errorf("prepare data_dir: %w", err)
	}
	return nil
}

// checkOperator returns an error if operator_team is not the id of a team, because emails to the operator would then
// have no recipient.
func (n *Node) checkOperator(ctx context.Context) error {
	if n.Config.OperatorTeam == "" || n.o.Beside {
		return nil
	}
	_, err := n.Teams.Operator(ctx, n.Config.OperatorTeam)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return fmt.Errorf("operator_team: no team has the id %s; `postrider teams list` shows the ids of all teams",
			n.Config.OperatorTeam)
	}
	return err
}

// OpenKeyring returns the keyring of the installation, whose database is d. The master key is that of the setting
// secret_key, or else that of data_dir/secret.key. The first start stores a check value of the key in the database.
// From then on, OpenKeyring refuses every other key. With another key, the secrets in the database could not be
// decrypted, and the emails of all domains would stay in the queue.
//
// If begin is true and the installation has no team and no check value, OpenKeyring may create the key file, which it
// logs. If begin is false, it stores nothing: a command in a wrong folder must not decide on the key.
func OpenKeyring(ctx context.Context, d *db.DB, c config.Config, begin bool, log *slog.Logger) (*keyring.Keyring,
	error) {
	want, err := d.Fact(ctx, db.FactKeyCheck)
	if err != nil {
		return nil, err
	}
	fresh := begin && want == ""
	if fresh {
		// Teams without a check value are those of a build that stored none. Their secrets need the key that they had.
		some, err := teams.Exist(ctx, d.Reader)
		if err != nil {
			return nil, err
		}
		fresh = !some
	}
	k, created, err := readKeyring(c, fresh)
	if err != nil {
		return nil, err
	}
	if created {
		log.Info("created the secret key of this installation; back it up: without it, the secrets in the database and in "+
			"its backups cannot be decrypted", "path", keyFile(c))
	}
	if want == "" && begin {
		if want, err = d.KeepFact(ctx, db.FactKeyCheck, k.Check()); err != nil {
			return nil, err
		}
	}
	return k, matches(k, c, want)
}

// matches returns an error unless the keyring has the key with the given check value, which is "" if none is stored.
// After a rotation, the check value is that of the former key until all rows are sealed again.
func matches(k *keyring.Keyring, c config.Config, want string) error {
	if want == "" || k.Matches(want) {
		return nil
	}
	where := "the setting secret_key"
	if c.SecretKey == "" {
		where = keyFile(c)
	}
	return fmt.Errorf("the secret key in %s is not the one of this installation, so the secrets in its database cannot be "+
		"decrypted: %s", where, bringKey(c))
}

// CheckKey returns an error unless the configured secret key has the given check value. If the value is "", CheckKey
// only checks that there is a key.
func CheckKey(c config.Config, want string) error {
	k, _, err := readKeyring(c, false)
	if err != nil {
		return err
	}
	return matches(k, c, want)
}

func keyFile(c config.Config) string { return filepath.Join(c.DataDir, "secret.key") }

// bringKey says how to get the key of an installation.
func bringKey(c config.Config) string {
	return fmt.Sprintf("put the key of the installation into %s, or set secret_key to it; your copy of the key, another "+
		"node, or an archive of `postrider backup --with-key` has it", keyFile(c))
}

// readKeyring reads the master key. If create is true, and no setting and no file has it, readKeyring creates the file,
// and created is true.
func readKeyring(c config.Config, create bool) (k *keyring.Keyring, created bool, err error) {
	switch {
	case c.SecretKey != "":
		k, err = keyring.Parse(string(c.SecretKey))
		return k, false, err
	case create:
		return keyring.LoadOrCreate(keyFile(c))
	}
	k, err = keyring.Load(keyFile(c))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("the secret key of this installation is missing: %s", bringKey(c))
	}
	return k, false, err
}

// Has reports whether the node has the given role.
func (n *Node) Has(role string) bool { return slices.Contains(n.Config.Roles, role) }

// Close closes everything that Open has opened. The caller must wait until Run has returned before calling Close.
func (n *Node) Close() {
	n.closePorts()
	if n.metered != nil {
		n.metered.Close()
	}
	if n.certs != nil {
		n.certs.Close()
	}
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
