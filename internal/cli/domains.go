package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/sending/domains"
)

func domainsCommand() command {
	return command{use: "domains", group: groupSafety, source: ofNode,
		short: "replace the DKIM keys of a domain",
		long: "Replaces the DKIM keys of a domain of any team. Teams can do the same with the API. The page domains.md " +
			"explains how keys are replaced.",
		example: "postrider domains rotate-keys mail.acme.example",
		sub: []command{
			{use: "rotate-keys DOMAIN", short: "begin a rotation of a domain's DKIM keys",
				long: "Creates new DKIM keys for a domain and prints all its keys with their records. The new keys sign emails " +
					"after all name servers have shown their records for two TTLs. Use --emergency if somebody else may have " +
					"the private keys. The new keys then sign as soon as their records are seen. The old keys are revoked an " +
					"hour later.",
				example: "postrider domains rotate-keys mail.acme.example\n" +
					"postrider domains rotate-keys mail.acme.example --emergency",
				define: beside("domains rotate-keys", rotateDomainKeys)},
		}}
}

// dkimKeyObject is a DKIM key in JSON.
type dkimKeyObject struct {
	Selector  string     `json:"selector"`
	Algorithm string     `json:"algorithm"`
	State     string     `json:"state"`
	Name      string     `json:"name"`
	Value     string     `json:"value"`
	Emergency bool       `json:"emergency"`
	Since     *time.Time `json:"since"`
	SeenAt    *time.Time `json:"seen_at"`
	Until     *time.Time `json:"until"`
}

func rotateDomainKeys(flags *pflag.FlagSet) action {
	emergency := flags.Bool("emergency", false, "somebody else may have the private keys: replace and revoke them as soon as "+
		"possible")
	return func(ctx context.Context, e *env, n *node.Node, words []string) error {
		d, err := n.Domains.Owned(ctx, strings.ToLower(words[0]))
		if fault.KindOf(err) == fault.NotFound {
			return fmt.Errorf("no team has added the domain %q: give its exact name, such as mail.acme.example", words[0])
		}
		if err != nil {
			return err
		}
		audit.Team(ctx, d.TeamID)
		keys, err := n.Domains.RotateKeys(ctx, d.TeamID, d.ID, *emergency)
		if err != nil {
			return err
		}
		o := struct {
			ID     string          `json:"id"`
			TeamID string          `json:"team_id"`
			Domain string          `json:"domain"`
			Keys   []dkimKeyObject `json:"keys"`
		}{d.ID, d.TeamID, d.Name, []dkimKeyObject{}}
		for _, k := range keys {
			o.Keys = append(o.Keys, dkimKeyObject{k.Selector, k.Algorithm, string(k.State), k.Name, k.Value, k.Emergency,
				moment(k.Since), moment(k.SeenAt), moment(k.Until)})
		}
		return e.print(o, func(w io.Writer) error {
			if err := writeKeys(w, keys); err != nil {
				return err
			}
			_, err := fmt.Fprintln(w, "\n"+afterRotation(&d))
			return err
		})
	}
}

// afterRotation says what happens next with the new keys of a domain, and what its owner must do.
func afterRotation(d *domains.Domain) string {
	page := "the page of " + printable(d.Name) + " in the dashboard shows the state of each key"
	if d.PublishesKeys() {
		return "Next: the owner of the domain adds the TXT records of the keys with the state next. They sign after all name\n" +
			"servers have shown the records; " + page + "."
	}
	return "Next: nothing. This installation publishes the records of the new keys and then signs with them;\n" + page + "."
}

// writeKeys writes the keys of a domain as text.
func writeKeys(out io.Writer, keys []domains.Key) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\tTXT\t%s\n", k.State, k.Name, printable(k.Value))
	}
	return w.Flush()
}
