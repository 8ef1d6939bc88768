package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fetch"
	"github.com/postrider/postrider/internal/node/importfrom/listmonk"
	"github.com/postrider/postrider/internal/node/importfrom/mailgun"
	"github.com/postrider/postrider/internal/node/importfrom/postmark"
	"github.com/postrider/postrider/internal/node/importfrom/resend"
	"github.com/postrider/postrider/internal/node/importfrom/sendgrid"
	"github.com/postrider/postrider/internal/platform/audit"
)

// importKeyVariable is the variable with the key of the product from which data is imported.
const importKeyVariable = "POSTRIDER_IMPORT_KEY"

// product is an email product from which data can be imported.
type product struct {
	name    string
	title   string
	what    string // kinds of data, for the help
	example string
	// define adds the product's own flags, and returns the function that opens its source.
	define func(flags *pflag.FlagSet) sourceOpener
}

// sourceOpener opens a source with the given key, and names its place.
type sourceOpener func(e *env, key string) (s importfrom.Source, place string, err error)

func products() []product {
	return []product{
		{name: "resend", title: "Resend, or another Postrider",
			what:    "domains, properties, segments, topics, templates, suppressions, contacts and webhooks",
			example: "postrider import-from resend --team Acme --key-file resend.key --dry-run",
			define:  defineResend},
		{name: "listmonk", title: "listmonk",
			what: "lists (as segments and topics), transactional templates, bounces and subscribers",
			example: "postrider import-from listmonk --team Acme --from-url https://lists.example.com --key-file " +
				"listmonk.key",
			define: defineListmonk},
		{name: "postmark", title: "Postmark",
			what:    "domains, templates, suppressions, unsubscribes and webhooks",
			example: "postrider import-from postmark --team Acme --key-file server.key --account-key-file account.key",
			define:  definePostmark},
		{name: "mailgun", title: "Mailgun",
			what: "domains, mailing lists (as segments and topics), templates, suppressions, members, unsubscribes and " +
				"webhooks",
			example: "postrider import-from mailgun --team Acme --key-file mailgun.key",
			define:  defineMailgun},
		{name: "sendgrid", title: "SendGrid",
			what: "domains, unsubscribe groups (as topics), templates, suppressions, unsubscribes, webhooks, and contacts " +
				"from an exported file",
			example: "postrider import-from sendgrid --team Acme --key-file sendgrid.key --contacts contacts.csv",
			define:  defineSendGrid},
	}
}

// importFromCommand imports a team's data from another product. It may run beside a node.
func importFromCommand() command {
	const rules = " Nothing is overwritten, nothing is sent, and no API keys are created. An import that was interrupted " +
		"continues where it stopped when the command is run again."
	c := command{use: "import-from", group: groupEmail, source: ofNode,
		short:   "import a team's data from another email product",
		long:    "Imports domains, templates, contacts, suppressions and webhooks from another email product into a team." + rules,
		example: "postrider import-from resend --team Acme --key-file resend.key --dry-run"}
	for _, p := range products() {
		c.sub = append(c.sub, command{use: p.name, short: "import from " + p.title,
			long: "Imports " + p.what + " from " + p.title + "." + rules, example: p.example,
			define: beside("import-from "+p.name, func(flags *pflag.FlagSet) action { return importFrom(flags, p) })})
	}
	return c
}

// fromURL adds the flag for the base of a product's API.
func fromURL(flags *pflag.FlagSet, base, which string) *string {
	return flags.String("from-url", base, "base `URL` of the API, such as that of "+which)
}

// openClient returns a client of a product's API. The key must not be empty.
func openClient(key string, o fetch.Options) (*fetch.Client, error) {
	if key == "" {
		return nil, errNoImportKey
	}
	c, err := fetch.New(o)
	if err != nil {
		return nil, usagef("--from-url: %v", err)
	}
	return c, nil
}

// defineResend adds the flags for Resend.
func defineResend(flags *pflag.FlagSet) sourceOpener {
	base := fromURL(flags, resend.URL, "another Postrider")
	return func(_ *env, key string) (importfrom.Source, string, error) {
		c, err := openClient(key, fetch.Options{URL: *base, Name: "Resend", Header: resend.Header(key)})
		if err != nil {
			return nil, "", err
		}
		return resend.New(c), c.URL(), nil
	}
}

// defineListmonk adds the flags for listmonk.
func defineListmonk(flags *pflag.FlagSet) sourceOpener {
	base := flags.String("from-url", "", "`URL` of listmonk, such as https://lists.example.com")
	return func(_ *env, key string) (importfrom.Source, string, error) {
		if *base == "" {
			return nil, "", usageError("--from-url is missing: the URL of listmonk, such as https://lists.example.com")
		}
		if key == "" {
			return nil, "", errNoImportKey
		}
		header, err := listmonk.Header(key)
		if err != nil {
			return nil, "", usageError(err.Error())
		}
		c, err := openClient(key, fetch.Options{URL: *base, Name: "listmonk", Header: header})
		if err != nil {
			return nil, "", err
		}
		return listmonk.New(c), c.URL(), nil
	}
}

// definePostmark adds the flags for Postmark.
func definePostmark(flags *pflag.FlagSet) sourceOpener {
	base := fromURL(flags, postmark.URL, "a proxy")
	accountFile := flags.String("account-key-file", "", "`file` with the token of the account, for its domains; without "+
		"it, domains are not imported")
	return func(e *env, key string) (importfrom.Source, string, error) {
		server, err := openClient(key, fetch.Options{URL: *base, Name: "Postmark", Header: postmark.Header(key),
			MaxBody: postmark.MaxBody})
		if err != nil || *accountFile == "" {
			return postmark.New(server, nil), *base, err
		}
		token, err := readImportKey(e, "--account-key-file", *accountFile)
		if err != nil {
			return nil, "", err
		}
		account, err := openClient(token, fetch.Options{URL: *base, Name: "Postmark", Header: postmark.AccountHeader(token)})
		return postmark.New(server, account), *base, err
	}
}

// defineMailgun adds the flags for Mailgun.
func defineMailgun(flags *pflag.FlagSet) sourceOpener {
	base := fromURL(flags, mailgun.URL, "the EU region, https://api.eu.mailgun.net")
	return func(_ *env, key string) (importfrom.Source, string, error) {
		c, err := openClient(key, fetch.Options{URL: *base, Name: "Mailgun", Header: mailgun.Header(key)})
		if err != nil {
			return nil, "", err
		}
		return mailgun.New(c), c.URL(), nil
	}
}

// defineSendGrid adds the flags for SendGrid.
func defineSendGrid(flags *pflag.FlagSet) sourceOpener {
	base := fromURL(flags, sendgrid.URL, "the EU region, https://api.eu.sendgrid.com")
	file := flags.String("contacts", "", "CSV `file` with the contacts that Marketing Campaigns exported")
	return func(_ *env, key string) (importfrom.Source, string, error) {
		c, err := openClient(key, fetch.Options{URL: *base, Name: "SendGrid", Header: sendgrid.Header(key)})
		if err != nil {
			return nil, "", err
		}
		place := c.URL()
		if *file != "" { // an import does not continue in the rows of another file
			place += " and " + *file
		}
		return sendgrid.New(c, *file), place, nil
	}
}

// importFrom adds the flags that all products share, and returns the action that imports.
func importFrom(flags *pflag.FlagSet, p product) action {
	team := flags.String("team", "", "the `team` that gets the data, by id or exact name")
	keyFile := flags.String("key-file", "", "`file` with the key of the product, or - for standard input; the default is "+
		"the variable "+importKeyVariable)
	dryRun := flags.Bool("dry-run", false, "write nothing, and report what an import would do")
	only := flags.StringSlice("only", nil, "only these `kinds`, separated by commas: "+joinKinds(importfrom.Kinds())+
		"; contacts and members also import suppressions, segments and topics, and members also import contacts")
	stateFile := flags.String("state", "", "`file` for the progress; by default, it is in data_dir, or else in the "+
		"current folder")
	restart := flags.Bool("restart", false, "forget the progress of an import that did not end")
	open := p.define(flags)
	return func(ctx context.Context, e *env, n *node.Node, _ []string) error {
		if *team == "" {
			return errNoTeam
		}
		kinds, err := parseKinds(*only)
		if err != nil {
			return err
		}
		key, err := readImportKey(e, "--key-file", *keyFile)
		if err != nil {
			return err
		}
		source, place, err := open(e, key)
		if err != nil {
			return err
		}
		return withTeam(ctx, n, *team, func(t teams.Team) error {
			o := importfrom.Options{TeamID: t.ID, Source: source, Name: p.name + " " + place, Key: key, DryRun: *dryRun, Only: kinds,
				Restart: *restart, State: cmp.Or(*stateFile, defaultState(n, p.name, t.ID)),
				Say: func(format string, args ...any) { fmt.Fprintf(e.errOut, format+"\n", args...) }}
			if !*dryRun {
				entry := audit.Entry{Action: "team.imported", Target: t.ID, Detail: o.Name}
				if err := n.Audit.Write(ctx, entry); err != nil {
					return err
				}
			}
			return runImport(ctx, e, n, t.Name, o)
		})
	}
}

// runImport imports and prints the report.
func runImport(ctx context.Context, e *env, n *node.Node, team string, o importfrom.Options) error {
	r, err := importfrom.Run(ctx, importfrom.Deps{DB: n.DB, Contacts: n.Contacts, Domains: n.Domains,
		Templates: n.Templates, Suppressions: n.Suppressions, Webhooks: n.Webhooks}, o)
	if err != nil {
		if r != nil && !o.DryRun {
			return fmt.Errorf("%w; run the command again to continue the import", err)
		}
		return err
	}
	if err := e.print(r, func(w io.Writer) error { return writeImportReport(w, r, team) }); err != nil {
		return err
	}
	refused := int64(0)
	for _, c := range r.Counts {
		refused += c.Refused
	}
	if refused > 0 && !o.DryRun {
		return fmt.Errorf("%d records were refused; the report says why", refused)
	}
	return nil
}

// readImportKey reads the key of the other product from a file, which a flag names, or from the environment if file is
// "".
func readImportKey(e *env, flag, file string) (string, error) {
	if file == "" {
		return strings.TrimSpace(e.getenv(importKeyVariable)), nil
	}
	const maxKey = 64 << 10
	from := os.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("%s: %w", flag, err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxKey))
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return "", fmt.Errorf("%s: the file must contain the key in one line, and nothing else", flag)
	}
	return key, nil
}

// errNoImportKey means that no key of the other product was given.
var errNoImportKey = usageError("the key of the product is missing: name a file that contains it with --key-file, or " +
	"set " + importKeyVariable)

// defaultState returns the path of the state file of an import.
func defaultState(n *node.Node, product, teamID string) string {
	name := "import-from-" + product + "-" + teamID + ".json"
	if info, err := os.Stat(n.Config.DataDir); err == nil && info.IsDir() {
		return filepath.Join(n.Config.DataDir, name)
	}
	return name
}

func joinKinds(kinds []importfrom.Kind) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// parseKinds reads the value of --only.
func parseKinds(names []string) (kinds []importfrom.Kind, err error) {
	for _, name := range names {
		kind := importfrom.Kind(strings.TrimSpace(name))
		if !slices.Contains(importfrom.Kinds(), kind) {
			return nil, usagef("--only: %q is not a kind of data; use %s", name, joinKinds(importfrom.Kinds()))
		}
		kinds = append(kinds, kind)
	}
	return kinds, nil
}

// writeImportReport writes the report of an import as text.
func writeImportReport(out io.Writer, r *importfrom.Report, team string) error {
	fmt.Fprintf(out, "Import from %s into the team %s\n", printable(r.Source), printable(team))
	if r.DryRun {
		fmt.Fprintln(out, "Dry run: nothing was written. The counts say what an import would do.")
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "kind\tcreated\tcompleted\tkept\tdiffering\trefused")
	for _, kind := range importfrom.Kinds() {
		if c := r.Counts[kind]; c != nil {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", kind, c.Created, c.Completed, c.Kept, c.Differing, c.Refused)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, kind := range []importfrom.Kind{importfrom.Contacts, importfrom.Members} {
		if c := r.Counts[kind]; c != nil && c.OptedOut > 0 {
			fmt.Fprintf(out, "\n%d contacts that existed are now unsubscribed or opted out (%s).\n", c.OptedOut, kind)
		}
	}
	if len(r.Items) > 0 {
		fmt.Fprintln(out)
	}
	for _, i := range r.Items {
		fmt.Fprintf(out, "%s %s: %s", i.Kind, printable(i.Name), i.Outcome)
		if i.Note != "" {
			fmt.Fprintf(out, " (%s)", printable(i.Note))
		}
		fmt.Fprintln(out)
		for _, rec := range i.Records {
			value := rec.Value
			if rec.Type == "MX" {
				value = fmt.Sprintf("%d %s", rec.Priority, value)
			}
			fmt.Fprintf(out, "  %s %s %s\n", rec.Type, rec.Name, value)
		}
	}
	for _, x := range r.LeftOut {
		fmt.Fprintf(out, "left out: %d %s\n", x.Count, printable(x.What))
	}
	for _, text := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", printable(text))
	}
	return nil
}
