// Package receiving accepts and stores incoming mail: mail for the domains of teams, and bounces and complaints about
// sent emails.
//
// A recipient is accepted if it is (a) at a verified receiving domain, whatever the local part, (b) the return path of
// an email that was sent by this installation, which is signed, (c) at a team's host below the managed domain, or (d)
// an address of the operator: postmaster and abuse at the node's own hosts, and the addresses for complaints. All
// others are refused.
//
// # Invariants
//
// Nothing is relayed, and nothing that was accepted is bounced.
//
// When Data returns without an error, each team that the message is for has it on disk, with its event, written in one
// transaction. The exception is what the content filter discards. A large raw message is a blob that is durable before
// the transaction; a small one is a row, which on SQLite shares a commit with others. A message that cannot be parsed
// is accepted and stored like any other: parsing only determines what is shown of it. What is shown beyond the columns
// of lists is read from the raw message each time.
//
// A report at a return path becomes an event of the email that the signature identifies, once for each recipient and
// type, and only for recipients at the destination that the return path was made for. Replies and automatic answers
// there are accepted and dropped. A message at an address for complaints becomes a complaint if it quotes a signed
// return path or feedback field of an email, or is itself signed by a provider that the operator lists. Any other is
// stored as a received email of the operator, and suppresses nobody.
//
// # When it fails
//
// If there is no space the client gets a 452 reply, and a 451 for any other failure of our own, and tries again.
// Nothing of the message is stored then, except perhaps a blob that no row refers to, which [Service.Sweep] deletes.
// The exception is a commit whose answer was lost: the message may be stored, and then is stored twice.
//
// Reading a large message fails within seconds with a fault of kind Unavailable if there is no memory for it, or if the
// blob store does not answer. A raw message that is lost is an internal error, and is logged.
//
// # What it does not do
//
// It does not speak SMTP: mail/smtpserver does. It sends nothing.
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
	inRow         = 64 << 10         // octets of a raw message up to which it is stored in a row
	memoryDefault = 256 << 20        // octets that large messages may occupy at once
	memoryFactor  = 3                // memory for reading a message, as a multiple of its size
	takeWait      = time.Minute      // for memory, before a client must send a large message again later
	readWait      = 10 * time.Second // for memory, before a read of a large message fails
	recipientsMax = 100              // RFC 5321 section 4.5.3.1.8
	hopsMax       = 100              // Received fields; RFC 5321 section 6.3
	inlineMax     = 25 << 20         // octets of data URIs in one answer
	authorMax     = 1 << 10          // octets of a name in a shared email
	judgeWait     = 20 * time.Second // bounds the checks of a message's origin
)

// Config is the part of the configuration that concerns receiving.
type Config struct {
	Hostname      string   // name of this node in trace fields
	Hosts         []string // the node's own hosts, at which the operator has addresses; includes hosts of return paths
	ManagedDomain string   // empty if teams have no hosts of their own
	OperatorTeam  string   // id of the team that gets the operator's mail; empty means the oldest team
	Feedback      []string // addresses for complaints
	Providers     []string // domains and addresses whose signed complaints are accepted without a proof of ours
	PublicURL     string   // prefix of download links
	Memory        int64    // octets that large messages may occupy at once; 0 means a default

	// TakeWait and ReadWait are how long a large message waits for memory, when it is received and when it is read. 0
	// means a minute, and 10 seconds.
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
	Milter   *milter.Client  `deps:"optional"` // nil: there is no content filter
	Log      *slog.Logger
}

// Service accepts incoming mail and shows it. It is a smtpserver.Handler.
type Service struct {
	c      Config
	p      Deps
	memory *fairshare.Pool // octets, shared by the networks that send and the teams that read
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
	MessageID      string // with angle brackets; empty when it had none
	ThreadID       string // the same for all emails of a conversation
	Files          []File
	Origin         Origin
	Authentication *authres.Results // nil when not evaluated
	Spam           *Spam            // nil if there was no filter
	Size           int64
	CreatedAt      time.Time

	blobKey string
}

// Origin describes where a message came from.
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

// Content is the part of a received email that is read from its raw message. The caller must close it when nothing of
// it is used any more: until then it occupies memory that others wait for.
type Content struct {
	HTML    *string // nil when it has none
	Text    *string
	Header  []message.Field
	Defects []string

	memory *reservation
}

// Close releases the content's memory.
func (c *Content) Close() { c.memory.shrink(0) }
