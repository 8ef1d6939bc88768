package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/sending/domainconnect"
)

func domainConnectCommand() command {
	return command{use: "domain-connect", group: groupInspect, source: ofNode,
		short: "show the template and the key that DNS providers need to add records",
		long: "Shows what DNS providers need to add the records of customers' domains automatically (Domain Connect). The " +
			"setting domain_connect_provider turns it on.",
		example: "postrider domain-connect template",
		sub: []command{
			{use: "template", plain: true, short: "show the template for DNS providers",
				long: "Prints the template of the records as JSON. Give it to the DNS providers that your customers use, as a file " +
					"with the name PROVIDER.SERVICE.json.",
				example: "postrider domain-connect template > example.com.email.json",
				define:  beside("domain-connect template", noFlags(showConnectTemplate))},
			{use: "key", short: "show the DNS records of the public key",
				long: "Prints the TXT records that you must publish, so that DNS providers can check the signatures of links. The " +
					"first call creates the key.",
				example: "postrider domain-connect key",
				define:  beside("domain-connect key", noFlags(showConnectKey))},
		}}
}

func showConnectTemplate(_ context.Context, e *env, n *node.Node, _ []string) error {
	t, err := n.Connect.Template()
	if err != nil {
		return err
	}
	return encode(e.out, t)
}

// keyRecord is a record of the public key in JSON.
type keyRecord struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

func showConnectKey(ctx context.Context, e *env, n *node.Node, _ []string) error {
	all, err := n.Connect.KeyRecords(ctx)
	if err != nil {
		return err
	}
	list := struct {
		Data []keyRecord `json:"data"`
	}{[]keyRecord{}}
	for _, r := range all {
		list.Data = append(list.Data, keyRecord(r))
	}
	return e.print(list, func(w io.Writer) error { return writeKeyRecords(w, all) })
}

// writeKeyRecords writes the records as lines of a zone file.
func writeKeyRecords(w io.Writer, all []domainconnect.Record) error {
	for _, r := range all {
		if _, err := fmt.Fprintf(w, "%s. 3600 IN %s \"%s\"\n", r.Name, r.Type, r.Value); err != nil {
			return err
		}
	}
	return nil
}
