// Package receiving accepts and stores incoming mail: mail for the domains of teams, and bounces and complaints about
// sent emails.
//
// A recipient is accepted in four cases; all others are refused:
//
//   - (a) it is at a verified receiving domain, with any local part;
//   - (b) it is the signed return path of an email that this installation sent;
//   - (c) it is at a team's host below the managed domain;
//   - (d) it is an address of the operator: postmaster and abuse at the node's own hosts, and the addresses for
//     complaints.
//
// # Invariants
//
// The package relays no messages, and never bounces a message that it accepted.
//
// When Data returns without an error, each team that the message is for has it on disk with its event, written in one
// transaction. Messages that the content filter discards are the exception. A large raw message is a blob that is
// durable before the transaction. A small raw message is a row; on SQLite, several messages may share one commit. A
// message that cannot be parsed is accepted and stored like any other: parsing only affects what the API shows. Lists
// show columns; everything else is parsed from the raw message on each request.
//
// A report at a return path becomes an event of the email that the signature identifies, once for each recipient and
// type. A report counts only for recipients at the destination that the return path was made for. Replies and automatic
// answers to a return path are accepted and dropped. A message to an address for complaints becomes a complaint if it
// quotes a signed return path or feedback field of an email, or if a provider on the operator's list has signed it. Any
// other message to such an address is stored as a received email of the operator and suppresses no address.
//
// # When it fails
//
// Without disk space the client gets a 452 reply, and after any other internal error a 451 reply, and tries again
// later. After such a reply nothing is stored, except perhaps a blob without a row, which [Service.Sweep] deletes. If
// only the answer of a commit was lost, the message may be stored twice.
//
// Reading a large message fails within seconds with an Unavailable fault if there is no memory for it or the blob store
// does not answer. A missing raw message is an internal error and is logged.
//
// # What it does not do
//
// The package does not implement SMTP: package mail/smtpserver does. It sends no mail.
package receiving

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/milter"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	inRow         = 64 << 10         // maximum bytes of a raw message that is stored in a row
	memoryDefault = 256 << 20        // bytes of memory for all large messages together
	memoryFactor  = 3                // memory for reading a message, as a multiple of its size
	takeWait      = time.Minute      // wait for memory, after which a large message gets a 451 reply
	readWait      = 10 * time.Second // wait for memory, after which a read of a large message fails
	recipientsMax = 100              // RFC 5321 section 4.5.3.1.8
	hopsMax       = 100              // Received fields; RFC 5321 section 6.3
	inlineMax     = 25 << 20         // bytes of data URIs in one response
	authorMax     = 1 << 10          // bytes of an author's name in a shared email
	judgeWait     = 20 * time.Second // time limit of the checks of a message's origin
)

// Config is the configuration of receiving.
type Config struct {
	Hostname      string   // the node's name in trace fields
	Hosts         []string // the node's own hosts, including hosts of return paths; the operator has addresses there
	ManagedDomain string   // empty means that teams have no hosts of their own
	OperatorTeam  string   // id of the team that gets the operator's mail; empty means the oldest team
	Feedback      []string // addresses for complaints
	Providers     []string // domains and addresses whose signed complaints need no signed return path or feedback field
	PublicURL     string   // prefix of download links
	Memory        int64    // bytes of memory for all large messages together; 0 means a default

	// TakeWait is how long a large message waits for memory when it is received; 0 means one minute. ReadWait is the
	// same time for reading a message; 0 means 10 seconds.
	TakeWait, ReadWait time.Duration
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB       *db.DB
	Recorder *events.Recorder
	Blobs    *blob.Store
	Keys     *keyring.Keyring
	Domains  *domains.Service
	Emails   *emails.Service
	Teams    *teams.Service
	Quotas   *quotas.Service
	Auth     authres.Checker `deps:"optional"` // nil: SPF, DKIM and DMARC are not checked
	Milter   *milter.Client  `deps:"optional"` // nil means that there is no content filter
	Log      *slog.Logger
}

// Service accepts incoming mail and shows it. It is a smtpserver.Handler.
type Service struct {
	c      Config
	p      Deps
	memory *fairshare.Pool // in bytes; sending networks and reading teams share it
}

// New returns the service. It fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return newService(c, d), nil
}

// newService is New without the check, for tests that need few dependencies.
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
	MessageID      string // with angle brackets; empty if the message has none
	ThreadID       string // shared by all emails of a conversation
	Files          []File
	Origin         Origin
	Authentication *authres.Results // nil if not evaluated
	Spam           *Spam            // nil if no filter was asked
	Size           int64
	CreatedAt      time.Time

	blobKey string
}

// Origin says where a message came from.
type Origin struct {
	MailFrom string `json:"mail_from"` // empty for the null return path
	Hello    string `json:"hello"`
	Addr     string `json:"addr"`
	TLS      string `json:"tls,omitempty"` // version; empty if the connection was not encrypted
}

// File is an attachment without its content. Fields that the message does not specify are empty.
type File struct {
	ID          string `json:"id"`
	Filename    string `json:"filename,omitempty"`
	ContentType string `json:"content_type"`
	Disposition string `json:"disposition,omitempty"`
	ContentID   string `json:"content_id,omitempty"`
	Size        int64  `json:"size"`
}

// Content is the part of a received email that is parsed from its raw message. It occupies memory until the caller
// closes it.
type Content struct {
	HTML    *string // nil if the message has no HTML
	Text    *string
	Header  []message.Field
	Defects []string

	memory *reservation
}

// Close releases the content's memory.
func (c *Content) Close() { c.memory.shrink(0) }
