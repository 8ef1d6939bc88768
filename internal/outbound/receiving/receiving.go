// Package receiving accepts and stores incoming mail: mail for the domains of teams, and bounces and complaints about
// sent emails.
//
// Five kinds of recipients are accepted, and all others are refused. Teams receive mail for any local part at their
// verified receiving domains. Each team also receives mail for its host below the managed domain. Signed return paths
// of emails that this installation sent receive bounces. The operator receives mail for postmaster and abuse at the
// node's own hosts, and for the complaint addresses. If there are complaint addresses, fbl@ at each domain's
// return-path host is one, too. At the node's own hosts, each domain of a team has a random address for DMARC and TLS
// reports. Package domainreports reads these reports.
//
// # Invariants
//
// Package receiving does not relay messages, and never bounces a message after accepting it.
//
// When Data returns without an error, the received email and its event are durable for every recipient team, because
// they were written in one transaction. Messages that the content filter discards are not stored. A large raw message
// is stored as a blob, which is durable before the transaction begins. A small raw message is stored in a row; on
// SQLite, several messages may share one commit. A message that cannot be parsed is accepted and stored like any other
// message, because parsing only affects what the API shows. Lists return values from database columns; all other values
// are parsed from the raw message on each request.
//
// A report that arrives at a return path becomes an event for the email that the return path's signature identifies,
// once per recipient and type. A report counts only for recipients at the destination for which the return path was
// created. Replies and automatic responses to a return path are accepted and discarded. A message to a complaint
// address is recorded as a complaint in two cases: it quotes an email's signed return path or feedback field, or a
// provider on the operator's list has signed it. Any other message to a complaint address is stored as an email that
// the operator received, and does not suppress any address.
//
// # Failures
//
// The client receives a 452 reply if the disk is full, and a 451 reply after any other internal error. The client
// should retry later after a 451 or 452 reply. A refused message leaves nothing stored except possibly a blob without a
// row, which [Service.Sweep] deletes. If only the response to the commit was lost, the client's retry may store the
// message twice.
//
// Reading a large message fails within seconds with an Unavailable fault if not enough memory is available or the blob
// store does not respond. A missing raw message is logged and returned as an internal error.
//
// # Out of scope
//
// Package receiving does not implement SMTP; package mail/smtpserver does. Package receiving sends no mail.
package receiving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/milter"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	inRow         = 64 << 10         // maximum size, in bytes, of a raw message that is stored in a row
	memoryDefault = 256 << 20        // memory in bytes for processing all large messages together
	memoryFactor  = 3                // memory for reading a message, as a multiple of the message size
	takeWait      = time.Minute      // maximum wait for memory, after which a large message is refused with 451
	readWait      = 10 * time.Second // maximum wait for memory, after which reading a large message fails
	recipientsMax = 100              // maximum number of recipients per message (RFC 5321 section 4.5.3.1.8)
	hopsMax       = 100              // maximum number of Received fields per message (RFC 5321 section 6.3)
	inlineMax     = 25 << 20         // maximum total size, in bytes, of data URIs per response
	authorMax     = 1 << 10          // maximum length, in bytes, of the author's name in a shared email
	judgeWait     = 20 * time.Second // time limit for checking a message's origin
)

// Config holds the settings of the receiving service.
type Config struct {
	Hostname      string   // the node's host name in trace fields
	Hosts         []string // the node's own host names, including those of return paths; the operator has addresses there
	ManagedDomain string   // managed domain; if empty, teams have no managed hosts
	OperatorTeam  string   // id of the team that receives the operator's mail; empty means the oldest team
	Feedback      []string // addresses for complaints; if there are any, fbl@ at return-path hosts is one, too
	Providers     []string // domains and addresses of providers whose signed complaints need no other proof
	PublicURL     string   // URL prefix of download links
	Memory        int64    // memory in bytes for all large messages together; 0 means the default

	// TakeWait is the maximum time for which a large incoming message waits for memory; 0 means one minute. ReadWait is
	// the maximum time for which reading a large message waits for memory; 0 means 10 seconds.
	TakeWait, ReadWait time.Duration
}

// Deps holds the dependencies of a Service.
type Deps struct {
	DB       *db.DB
	Recorder *events.Recorder
	Blobs    *blob.Store
	Keys     *keyring.Keyring
	Domains  *domains.Service
	Reports  *domainreports.Service `deps:"optional"` // if nil, no address for reports is accepted
	Emails   *emails.Service
	Teams    *teams.Service
	Quotas   *quotas.Service
	Auth     authres.Checker `deps:"optional"` // if nil, SPF, DKIM and DMARC are not checked
	Milter   *milter.Client  `deps:"optional"` // if nil, messages are not filtered
	Log      *slog.Logger

	// Forward enqueues the forwarding of received emails, in the transaction that stores them.
	Forward func(ctx context.Context, tx *db.Tx, all []emails.Arrival) error `deps:"optional"`

	// Observe is called after a message was stored for at least one team ("stored"), or only changed the state of sent
	// emails, as a bounce does ("report").
	Observe func(result string) `deps:"optional"`
	// CountDMARC is called for each stored message whose authentication was checked, except for reports. The facts are
	// nil if DMARC does not apply to the message. CountDMARC must not block. If it is nil, no DMARC reports are sent.
	CountDMARC func(*authres.Facts) `deps:"optional"`
}

// Service accepts and stores incoming mail and reads the stored emails. Service implements smtpserver.Handler.
type Service struct {
	c      Config
	p      Deps
	memory *fairshare.Pool // memory in bytes, shared by sending networks and reading teams
}

// New returns the receiving service. New fails if a required dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return newService(c, d), nil
}

// newService is like New but does not check the dependencies, for tests that need only a few of them.
func newService(c Config, d Deps) *Service {
	if c.Memory == 0 {
		c.Memory = memoryDefault
	}
	c.TakeWait, c.ReadWait = cmp.Or(c.TakeWait, takeWait), cmp.Or(c.ReadWait, readWait)
	return &Service{c: c, p: d, memory: fairshare.New(c.Memory, fairshare.Greed)}
}

// Email is a received email.
type Email struct {
	ID             string
	TeamID         string
	DomainID       string
	From           string // the bare address
	To             []string
	Cc             []string
	Bcc            []string
	ReplyTo        []string
	ReceivedFor    []string
	Subject        string
	MessageID      string // with angle brackets; empty if the message has no Message-ID
	ThreadID       string // thread id, which all emails of a conversation share
	Files          []File
	Origin         Origin
	Authentication *authres.Results // nil if the message was not authenticated
	Spam           *Spam            // nil if no content filter checked the message
	Size           int64
	CreatedAt      time.Time

	blobKey string
	to      []emails.ArrivalAddress // only set while the email is being stored
}

// Origin describes where a message came from.
type Origin struct {
	MailFrom string `json:"mail_from"` // envelope sender; empty for the null return path
	Hello    string `json:"hello"`
	Addr     string `json:"addr"`
	TLS      string `json:"tls,omitempty"`  // TLS version; empty if the connection was not encrypted
	UTF8     bool   `json:"utf8,omitempty"` // whether the client asked for SMTPUTF8 (RFC 6531)
}

// File describes an attachment without its content. Fields of File that the message does not specify are empty.
type File struct {
	ID          string `json:"id"`
	Filename    string `json:"filename,omitempty"`
	ContentType string `json:"content_type"`
	Disposition string `json:"disposition,omitempty"`
	ContentID   string `json:"content_id,omitempty"`
	Size        int64  `json:"size"`
}

// Content holds the parts of a received email that are parsed from its raw message. Content occupies memory until the
// caller closes it.
type Content struct {
	HTML    *string // nil if the message has no HTML part
	Text    *string
	Header  []message.Field
	Defects []string

	s      *Service
	id     string // of the email
	files  []mailparse.File
	memory *reservation
}

// WriteHTML writes the HTML for a browser, with inline images of safe types embedded as data URIs, if Content was read
// with the format CID. Unlike the format DataURI, it needs no memory for what it writes. WriteHTML fails if writing to
// w fails or if the HTML could not be read.
func (c *Content) WriteHTML(w io.Writer) (err error) {
	if c.HTML == nil {
		return nil
	}
	if !c.s.catchPanic(c.id, func() {
		err = mailparse.WriteWithImages(w, *c.HTML, mailparse.SafeImages(c.files), inlineMax)
	}) {
		return errors.New("the inline images of a received email could not be read")
	}
	return err
}

// File returns the bytes of the email's attachment with an index in [Email.Files]. They belong to Content, so that
// reading an attachment needs no further memory.
func (c *Content) File(i int) ([]byte, error) {
	if i < 0 || i >= len(c.files) {
		return nil, fmt.Errorf("attachment %d of received email %s is not in its raw message", i, c.id)
	}
	return c.files[i].Content, nil
}

// Close releases the memory that Content occupies.
func (c *Content) Close() { c.memory.shrink(0) }
