package explain

import (
	"strings"
	"time"

	"github.com/postrider/postrider/internal/sending/evidence"
)

// AttemptTLS describes the encryption of an attempt's connection.
type AttemptTLS struct {
	State       string `json:"state" enum:"encrypted,clear,not_recorded,no_connection"`
	Says        string `json:"says"`
	Protocol    string `json:"protocol" doc:"The TLS version and cipher; empty if the connection was not encrypted."`
	Rule        string `json:"rule" enum:"none,sender,operator,dane,dane_unusable,mta_sts,mta_sts_testing" doc:"The rule that decided how the connection had to be encrypted: the sending domain's setting tls, the operator, or a policy of the recipient's domain. none also means that the rule was not recorded."`
	Certificate string `json:"certificate" enum:"valid,expired,other_name,unknown_issuer,invalid,not_recorded,none"`

	Names   []string   `json:"certificate_names" doc:"The first names in the certificate, as far as they were recorded."`
	More    int        `json:"certificate_more_names" doc:"The number of further names in the certificate."`
	Issuer  string     `json:"certificate_issuer" doc:"The issuer of the certificate; empty if not recorded."`
	Expires *time.Time `json:"certificate_expires_at" nullable:"true" doc:"When the certificate expires; null if not recorded."`
	Problem string     `json:"certificate_problem" doc:"Why the certificate is not valid, word for word; empty if it is valid, or if the problem was not recorded."`
}

// clears explains why a connection was not encrypted.
var clears = map[evidence.Clear]string{
	evidence.NotOffered:  "The connection was not encrypted: the host does not offer STARTTLS.",
	evidence.Refused:     "The connection was not encrypted: the host offered STARTTLS and refused it.",
	evidence.Broken:      "The connection was not encrypted: a TLS handshake with this address had failed.",
	evidence.SwitchedOff: "The connection was not encrypted: the relay's settings do not ask for TLS.",
}

// certs explains the state of a certificate.
var certs = map[evidence.Cert]struct{ key, says string }{
	evidence.Valid:         {"valid", "The certificate is valid for the host's name."},
	evidence.Expired:       {"expired", "The certificate has expired."},
	evidence.OtherName:     {"other_name", "The certificate is for another name."},
	evidence.UnknownIssuer: {"unknown_issuer", "The certificate was not issued by a known authority."},
	evidence.Invalid:       {"invalid", "The certificate is not valid."},
}

// demands explains what decided how a connection had to be encrypted.
var demands = map[evidence.Rule]struct{ key, says string }{
	0:                         {"none", ""},
	evidence.SenderRequires:   {"sender", "The sending domain's setting tls requires a valid certificate."},
	evidence.OperatorRequires: {"operator", "The operator requires a valid certificate for this destination."},
	evidence.DANE:             {"dane", "The host's TLSA records (DANE) say which certificate it must have."},
	evidence.DANEUnusable: {"dane_unusable", "The host has TLSA records (DANE), but none that can be used. So " +
		"encryption is required, with any certificate."},
	evidence.MTASTS: {"mta_sts", "The MTA-STS policy of the recipient's domain requires a valid certificate."},
	evidence.MTASTSTesting: {"mta_sts_testing", "The MTA-STS policy of the recipient's domain is being tested, and " +
		"requires nothing yet."},
}

// encryption describes the encryption of the attempt's connection, and the rule that decided about it.
func (t *Try) encryption() AttemptTLS {
	x := t.connection()
	x.Rule = "none"
	if t.Evidence != nil {
		if r, ok := demands[t.Evidence.Rule]; ok && r.says != "" {
			x.Rule = r.key
			x.Says += " " + r.says
		}
	}
	return x
}

// connection describes the encryption of the attempt's connection.
func (t *Try) connection() AttemptTLS {
	x := t.protocol()
	x.Names = []string{}
	if e := t.Evidence; e != nil && e.Trouble != nil {
		p := e.Trouble.Peer
		x.Names, x.More, x.Issuer, x.Problem = append(x.Names, p.Names...), p.More, p.Issuer, p.Problem
		if !p.Expires.IsZero() {
			x.Expires = &p.Expires
		}
	}
	if name, problem := certificateNote(t.Conversation); len(x.Names) == 0 && name != "" && x.State == "encrypted" {
		x.Names, x.Problem = append(x.Names, name), problem
	}
	if len(x.Names) > 0 {
		x.Says += " It names " + strings.Join(x.Names, ", ") + "."
	}
	return x
}

// protocol describes the encryption without the names in the certificate.
func (t *Try) protocol() AttemptTLS {
	e := t.Evidence
	switch {
	case !t.contacted() && e != nil && e.Trouble != nil && e.Trouble.Peer.Problem != "":
		return AttemptTLS{State: "no_connection", Certificate: "invalid",
			Says: "The connection was closed, because the host's certificate is not valid."}
	case !t.contacted():
		return AttemptTLS{State: "no_connection", Says: "No connection was established.", Certificate: "none"}
	case t.TLS == "" && e != nil && e.Clear != 0:
		return AttemptTLS{State: "clear", Says: clears[e.Clear], Certificate: "none"}
	case t.TLS == "" && e == nil:
		return AttemptTLS{State: "clear", Says: "The connection was not encrypted. Why is not recorded.",
			Certificate: "none"}
	case t.TLS == "":
		return AttemptTLS{State: "not_recorded", Says: "Whether the connection was encrypted is not recorded.",
			Certificate: "not_recorded"}
	}
	protocol, rest, _ := strings.Cut(t.TLS, ",")
	x := AttemptTLS{State: "encrypted", Says: "The connection was encrypted (" + protocol + ").", Protocol: protocol,
		Certificate: "not_recorded"}
	if e != nil && e.Cert == evidence.Valid && e.Rule == evidence.DANE {
		x.Certificate = certs[e.Cert].key
		x.Says += " The certificate matches a TLSA record of the host."
	} else if e != nil && e.Cert != 0 {
		x.Certificate = certs[e.Cert].key
		x.Says += " " + certs[e.Cert].says
	} else if strings.HasSuffix(rest, "certificate verified") {
		x.Certificate = "valid"
		x.Says += " " + certs[evidence.Valid].says
	} else {
		x.Says += " The certificate was not verified. Why is not recorded."
	}
	return x
}

// certificateNote returns what the last note about a certificate in a transcript says. A transcript has such a note
// only for the first message of a connection. Package smtpclient writes the note.
func certificateNote(text string) (name, problem string) {
	const before, after = ", certificate of ", " not verified: "
	for line := range strings.Lines(text) {
		_, line, _ = strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		note, ok := strings.CutPrefix(line, "* ")
		if !ok {
			continue
		}
		if _, found, ok := strings.Cut(note, before); ok {
			if name, problem, ok = strings.Cut(found, after); !ok {
				name = strings.TrimSuffix(name, " verified")
			}
		}
	}
	return name, problem
}
