package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/bench"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/domains"
)

// devDefaults holds the default settings for development.
var devDefaults = map[string]string{
	"data_dir": "data/dev", "http_listen": "127.0.0.1:3000", "public_url": "", "transport": "capture",
	"rate_limit":   "1000",
	"notice_from":  "Postrider <notices@resend.dev>", // sender of system emails such as invitations; they go to the outbox
	"sandbox_send": "true", "trust_domains": "true", "allow_loopback": "true", "log_level": "warn",
	"hostname":       "localhost",
	"shutdown_grace": "5s", "roles": "api,delivery,jobs,submission,receiving", "smtp_in_listen": "127.0.0.1:1025",
	"smtp_submit_listen": "127.0.0.1:1587", "smtp_submits_listen": "", "smtp_submit_clear": "true",
}

// devSource holds the defaults of the command dev.
var devSource = config.Source{Defaults: devDefaults, Derived: map[string]string{"tracking_url": "public_url"}}

func devCommand() command {
	return command{use: "dev", plain: true, group: groupStart, source: &devSource,
		short: "start a node for development: SQLite, an API key, and an outbox that captures all email",
		long: "Starts a node on this machine that sends no email: all emails are captured in an outbox. It prints the " +
			"address, an API key, and a link that signs you in to the dashboard. The data is kept in data/dev.",
		example: "postrider dev\npostrider dev --http 127.0.0.1:4000 --domain acme.com",
		usual: []string{"config", "data-dir", "transport", "rate-limit", "trust-domains", "tracking-url", "roles",
			"log-level"},
		define: func(flags *pflag.FlagSet) runner {
			var o devOptions
			flags.StringVar(&o.http, "http", "", "`address` of the API (127.0.0.1:3000)")
			flags.StringVar(&o.relay, "relay", "", "`host:port` of a mail server that gets all email, instead of the outbox")
			flags.StringVar(&o.key, "api-key", "", "the API `key`; by default a new key, which is stored in data_dir")
			flags.StringVar(&o.smtpIn, "smtp-in", "",
				"`address` for incoming mail (127.0.0.1:1025, or any free port if that port is in use)")
			flags.StringArrayVar(&o.domains, "domain", nil, "a `domain` to add as verified; may be repeated")
			flags.StringVar(&o.smtpSubmit, "smtp-submit", "",
				"`address` of SMTP submission (127.0.0.1:1587, or any free port if that port is in use)")
			return withSettings(func(ctx context.Context, e *env, c config.Config, _ []string) error {
				return dev(ctx, e, c, o)
			})
		}}
}

// devOptions are the flags of the command dev.
type devOptions struct {
	http, relay, key, smtpIn, smtpSubmit string
	domains                              []string
}

// dev runs a node for development on this machine, and prints how to use it.
func dev(ctx context.Context, e *env, c config.Config, o devOptions) error {
	tuneCollector(e.getenv)
	ownURL := c.PublicURL == config.LocalURL(c.HTTPListen) // public_url is not configured
	c.HTTPListen = cmp.Or(o.http, c.HTTPListen)
	if o.relay != "" {
		c.Transport, c.RelayAddr = "relay", o.relay
	}
	listeners, url, err := node.ListenHere(c.HTTPListen)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w (choose another address with --http)", err)
	}
	for _, l := range listeners {
		defer l.Close()
	}
	if ownURL {
		c.PublicURL = url
	}
	c.TrackingURL = cmp.Or(c.TrackingURL, c.PublicURL)
	log := newLogger(c, e.errOut)
	defer flush(log)
	n, err := node.Open(ctx, c, log, node.Options{Version: Version, KeysConsent: true, Commands: Reference(),
		Unsigned: e.getenv(bench.EnvUnsigned) != "", Loopback: e.getenv(bench.EnvLoopback) != ""})
	if err != nil {
		return err
	}
	defer n.Close()
	if o.key == "" {
		if o.key, err = devKey(c); err != nil {
			return err
		}
	}
	if err := n.Teams.EnsureKey(ctx, "Development", "development", o.key); err != nil {
		return fmt.Errorf("create the development key: %w", err)
	}
	who, err := n.Teams.Authenticate(ctx, o.key)
	if err != nil {
		return fmt.Errorf("find the team of the development key: %w", err)
	}
	signIn, err := n.EnsureDeveloper(ctx, who.TeamID, func(path string) {
		fmt.Fprintf(e.out, "\nThe sign-in link was used. To sign in another browser, open %s%s\n", url, path)
	})
	if err != nil {
		return err
	}
	verified, err := addVerified(ctx, n, o.key, o.domains)
	if err != nil {
		return err
	}
	if err := errors.Join(n.ListenInboundDev(o.smtpIn), n.ListenSubmissionDev(o.smtpSubmit)); err != nil {
		return err
	}
	if err := n.ServeOutbox(o.key); err != nil {
		return err
	}
	greet(e, n, greeting{url, url + signIn, o.key, verified})
	if path := e.getenv(bench.EnvProfile); path != "" {
		f, err := os.Create(path)
		if err != nil {
			return fmt.Errorf("write the CPU profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("write the CPU profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	return n.Run(ctx, listeners...)
}

// devKeyFile returns the file with the API key of `postrider dev` in the folder with its data.
func devKeyFile(dataDir string) string { return filepath.Join(dataDir, "dev.key") }

// devKey returns the stored API key from earlier runs. On the first run, devKey creates and stores a key.
func devKey(c config.Config) (string, error) {
	path := devKeyFile(c.DataDir)
	text, err := os.ReadFile(path)
	if err == nil && strings.TrimSpace(string(text)) != "" {
		return strings.TrimSpace(string(text)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the development key: %w", err)
	}
	key := keyring.NewAPIKey()
	if err := os.WriteFile(path, []byte(key+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("store the development key: %w", err)
	}
	return key, nil
}

// addVerified adds domains to the team that owns the API key, verifies them without DNS, and returns their normalized
// names.
func addVerified(ctx context.Context, n *node.Node, key string, names []string) (verified []string, err error) {
	who, err := n.Teams.Authenticate(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("find the team of the development key: %w", err)
	}
	for _, name := range names {
		// The tracking subdomain allows the developer to enable tracking without adding a subdomain first.
		d, err := n.Domains.AddVerified(ctx, who.TeamID, domains.NewDomain{Name: name, TrackingSubdomain: "links"})
		if err != nil {
			return nil, fmt.Errorf("--domain %s: %w", name, err)
		}
		verified = append(verified, d.Name)
	}
	return verified, nil
}

// domainsLine returns a line that lists the verified domains and explains how to add others.
func domainsLine(n *node.Node, verified []string) string {
	if !n.Config.TrustDomains {
		return "verified by DNS, as in production"
	}
	how := "add one with POST /domains; POST /domains/{id}/verify verifies it within a second, without DNS"
	if len(verified) == 0 {
		return how + "\n           (--domain acme.com adds a verified one at the start)"
	}
	return "verified: " + strings.Join(verified, ", ") + "\n           " + how
}

// greeting holds the parts of the greeting that differ at each start.
type greeting struct {
	url, signIn, key string
	verified         []string // domains
}

// greet prints the addresses of the node, the link for signing in, the API key, and an example request.
func greet(e *env, n *node.Node, g greeting) {
	c, inbound := n.Config, "off: this node does not have the role receiving"
	if at := n.Port(node.PortInbound); at != "" {
		inbound = at + "  (SMTP, for domains with the capability receiving)"
	}
	submit := "off: this node does not have the role submission"
	if at := n.Port(node.PortSubmit); at != "" {
		submit = at + "  (user postrider, the key as the password)"
	}
	where := "captured in the outbox: " + g.url + "/dev/outbox"
	if c.Transport != "capture" {
		relay, _ := c.DefaultRelay()
		where = "sent through " + relay.Address
		if c.Transport == "direct" {
			where = "sent to the recipients' mail hosts"
		}
	}
	fmt.Fprintf(e.out, `Postrider is ready for development.

  API      %[1]s        (documentation: %[1]s/docs)
  Pages    %[8]s        (signs you in; works once)
  Key      %[2]s
  Mail     %[3]s
  SMTP     %[6]s
  Inbound  %[5]s
  Domains  %[7]s
  Data     %[4]s

Send an email:

  curl %[1]s/emails -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' \
    -d '{"from":"Acme <onboarding@resend.dev>","to":"you@example.org","subject":"Hello","html":"<p>It works.</p>"}'

List sent emails with their state:

  curl %[1]s/emails -H 'Authorization: Bearer %[2]s'

With an official client, set RESEND_BASE_URL=%[1]s and RESEND_API_KEY=%[2]s.
`, g.url, g.key, where, c.DataDir, inbound, submit, domainsLine(n, g.verified), g.signIn)
}
