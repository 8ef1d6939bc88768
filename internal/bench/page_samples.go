package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
)

// pageUsers is the number of users who open the pages of a team.
const pageUsers = 20

// signOwnersIn makes users who own the measured teams, and returns the tokens of their sessions, by team.
func (b *measurement) signOwnersIn(ctx context.Context, c config.Config) (tokens [][]string, err error) {
	n, err := b.openHere(ctx, c)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	for _, team := range b.fillTeams() {
		who, err := n.Teams.Authenticate(ctx, fillKey(team))
		if err != nil {
			return nil, err
		}
		var all []string
		for i := range pageUsers {
			token, err := signOwnerIn(ctx, n, who.TeamID, fmt.Sprintf("owner-%d-%d@bench.example", team, i))
			if err != nil {
				return nil, err
			}
			all = append(all, token)
		}
		tokens = append(tokens, all)
	}
	return tokens, nil
}

// signOwnerIn signs a user in, who becomes an owner of the team if the user does not exist yet.
func signOwnerIn(ctx context.Context, n *node.Node, teamID, address string) (token string, err error) {
	u, err := n.Users.ByEmail(ctx, address)
	isNew := fault.KindOf(err) == fault.NotFound
	if isNew {
		u, err = n.Users.Create(ctx, users.NewUser{Email: address, Name: "Laura Meyer"})
	}
	if err != nil {
		return "", err
	}
	return token, n.DB.Update(ctx, func(tx *db.Tx) error {
		if isNew {
			if err := n.Members.AddIn(ctx, tx, teamID, u.ID, teams.Owner); err != nil {
				return err
			}
		}
		token, err = n.Users.StartIn(ctx, tx, u, "bench", users.Client{Address: "127.0.0.1", UserAgent: "bench"})
		return err
	})
}

// startReceiving starts a node that also receives mail, and returns the address of its SMTP server. The caller must
// call stop to stop the node.
func (b *measurement) startReceiving(ctx context.Context) (n *measuredNode, mx string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", nil, err
	}
	mx = l.Addr().String()
	l.Close()
	stopDNS, err := b.serveDNS()
	if err != nil {
		return nil, "", nil, err
	}
	if n, err = b.start(ctx, "--smtp-in", mx); err != nil {
		stopDNS()
		return nil, "", nil, err
	}
	return n, mx, func() { n.stop(); stopDNS() }, nil
}

// makeSamples makes one of everything that the pages of a team show and that a filled store lacks: an email with an
// attachment, a received email, a forwarding rule, a suppression, and a webhook whose host does not exist.
func (b *measurement) makeSamples(ctx context.Context, n *measuredNode, mx string, team int) error {
	key, from, inbox := fillKey(team), "bench.example", fmt.Sprintf("inbox-%05d.example", team)
	if team > 0 {
		from = fmt.Sprintf("fill-%05d.example", team)
	}
	ask := func(method, path, body string, into any) error {
		text, status, err := n.callAs(ctx, key, method, path, body)
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("%s %s: status %d: %.300s", method, path, status, text)
		}
		if err == nil && into != nil {
			err = json.Unmarshal(text, into)
		}
		return err
	}
	var hooks struct{ Data []struct{ ID string } }
	if err := ask(http.MethodGet, "/webhooks", "", &hooks); err != nil {
		return err
	}
	if len(hooks.Data) == 0 { // the first run on this store
		if err := ask(http.MethodPost, "/webhooks", `{"endpoint":"https://hooks.sender.example/`+
			`postrider","events":["email.sent","email.received"]}`, nil); err != nil {
			return err
		}
		if err := ask(http.MethodPost, "/suppressions", `{"email":"left@example.net"}`, nil); err != nil {
			return err
		}
		if err := ask(http.MethodPost, "/contacts", `{"email":"laura@example.net","first_name":"Sample"}`, nil); err != nil {
			return err
		}
		var segment struct{ ID string }
		if err := ask(http.MethodPost, "/segments", `{"name":"Sample"}`, &segment); err != nil {
			return err
		}
		if err := ask(http.MethodPost, "/broadcasts", `{"name":"Sample","segment_id":"`+segment.ID+`","from":"Acme <hello@`+
			from+`>","subject":"What is new","html":"<p>Hello</p>"}`, nil); err != nil {
			return err
		}
		if err := n.addDomain(ctx, key, `{"name":"`+inbox+`","capabilities":{"receiving":"enabled"}}`); err != nil {
			return fmt.Errorf("add the receiving domain: %w", err)
		}
		var domains struct{ Data []struct{ ID string } }
		if err := ask(http.MethodGet, "/domains", "", &domains); err != nil {
			return err
		}
		for _, d := range domains.Data { // the pages of any of them may be opened
			if err := ask(http.MethodPatch, "/domains/"+d.ID, `{"capabilities":{"receiving":"enabled"}}`, nil); err != nil {
				return err
			}
			if err := ask(http.MethodPost, "/domains/"+d.ID+"/forwards",
				`{"match":"orders","url":"https://hooks.sender.example/orders"}`, nil); err != nil {
				return err
			}
		}
	}
	if err := ask(http.MethodPost, "/emails", `{"from":"Acme <hello@`+from+`>","to":"user@example.net",`+
		`"subject":"Receipt with a file","html":"<p>See the file.</p>",`+
		`"attachments":[{"filename":"a.txt","content":"YQ=="}]}`, nil); err != nil {
		return err
	}
	t := smtpTraffic{from: "alice@sender.example", to: "anyone@" + inbox}
	s, err := openSMTP(ctx, mx, t, nil)
	if err != nil {
		return err
	}
	defer s.conn.Close()
	return s.send(t, []byte(strings.ReplaceAll(receivedSample, "\n", "\r\n")))
}

// receivedSample is a message with text, HTML and a file.
const receivedSample = `From: Alice <alice@sender.example>
To: anyone@inbox.example
Subject: Where is my order?
Message-ID: <order-1@sender.example>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: text/html

<p>Order <b>4711</b> has not arrived.</p>
--x
Content-Type: text/plain; name="order.txt"
Content-Disposition: attachment; filename="order.txt"

4711
--x--
.
`
