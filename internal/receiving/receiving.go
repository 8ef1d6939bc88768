// Package receiving takes mail that comes in: for customers' domains, and what comes back to return paths.
//
// # What is taken
//
// A recipient is taken when it is (a) at a verified receiving domain, whatever the local part, (b) the return path of
// an email that was sent here, which is signed, (c) below the managed domain, where each team has a name, or (d) an
// address of the operator: postmaster and abuse at the node's own hosts, and the addresses for complaints. Everything
// else is refused; nothing is ever relayed, and nothing that was taken is bounced.
//
// # Invariants
//
// When Data returns without an error, each team that the message is for has it on disk, with its event, in one
// transaction. A large raw message is a blob that is durable before that transaction; a small one is a row of it, so
// that one commit pays for many. A message that cannot be read as mail is taken and kept like any other: reading
// decides only what is shown of it. What a received email has beyond the columns of lists is read out of its raw
// message each time.
//
// A report at a return path becomes an event of the email that the signature names, once for each recipient and type,
// and of recipients at the one destination that was written to with this return path. Replies and automatic answers
// there are taken and dropped. A complaint at an address for complaints becomes one if it quotes such a proof, or
// comes signed from a provider whom the operator lists; any other is a received email of the operator, and suppresses
// nobody.
//
// # When it fails
//
// Without space the client is told 452 and with any other trouble of ours 451, and tries again; nothing of the
// message is kept then but perhaps a blob that no row names, which [Service.Sweep] removes.
//
// Who reads a large message while there is no memory for it, or while the store of blobs is away, gets a fault of the
// kind Unavailable within seconds; a raw message that is lost is a failure of ours, and is logged.
//
// # What it does not do
//
// It does not speak SMTP: mail/smtpserver does. It sends nothing.
package receiving

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fair"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/milter"
	"github.com/postrider/postrider/internal/teams"
)

const (
	inRow         = 64 << 10         // octets of a raw message up to which it is kept in a row
	memoryDefault = 256 << 20        // octets that large messages may take at the same time
	memoryFactor  = 3                // what reading a message takes, as a multiple of its size
	takeWait      = time.Minute      // for memory, before a client is asked to send a large message again
	readWait      = 10 * time.Second // and before one is asked to come back for it
	recipientsMax = 100              // RFC 5321 section 4.5.3.1.8
	hopsMax       = 100              // Received fields, RFC 5321 section 6.3
	linkLifetime  = time.Hour        // of a download link
	inlineMax     = 25 << 20         // octets of data URIs in one answer
	authorMax     = 1 << 10          // octets of a name that a shared email shows
	judgeWait     = 20 * time.Second // for where a message comes from to be looked into
)

// Config is what of the configuration concerns receiving.
type Config struct {
	Hostname      string   // what this node calls itself in trace fields
	Hosts         []string // the node's own hosts, at which the operator has addresses; hosts of return paths among them
	ManagedDomain string   // empty when teams have no names of their own
	OperatorTeam  string   // id of the team that gets the operator's mail; empty is the oldest team
	Feedback      []string // addresses at which complaints arrive
	Providers     []string // domains and addresses whose signed complaints are believed without a proof of ours
	PublicURL     string   // that download links begin with
	Memory        int64    // octets that large messages may take at the same time; 0 is a default

	// TakeWait and ReadWait are how long a large message waits for memory when it comes in and when it is asked for; 0
	// is a minute, and 10 seconds.
	TakeWait, ReadWait time.Duration
}

// Parts are the rooms that receiving stands on.
type Parts struct {
	DB       *db.DB
	Recorder *events.Recorder
	Blobs    *blob.Store
	Keys     *keyring.Keyring
	Domains  *domains.Service
	Emails   *emails.Service
	Teams    *teams.Service
	Auth     authres.Checker // nil: not evaluated
	Milter   *milter.Client  // nil: no content filter is asked
	Log      *slog.Logger
}

// Service takes mail and shows what was taken. It is a smtpserver.Handler.
type Service struct {
	c      Config
	p      Parts
	memory *fair.Pool // octets, shared among the networks that hand in and the teams that read
}

// New returns the service.
func New(c Config, p Parts) *Service {
	if c.Memory == 0 {
		c.Memory = memoryDefault
	}
	c.TakeWait, c.ReadWait = cmp.Or(c.TakeWait, takeWait), cmp.Or(c.ReadWait, readWait)
	return &Service{c: c, p: p, memory: fair.New(c.Memory, fair.Greed)}
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
	Spam           *Spam            // nil when no filter was asked
	Size           int64
	CreatedAt      time.Time

	blobKey string
}

// Origin says from where a message came.
type Origin struct {
	MailFrom string `json:"mail_from"` // empty for the null return path
	Hello    string `json:"hello"`
	Addr     string `json:"addr"`
	TLS      string `json:"tls,omitempty"` // version; empty when in the clear
}

// File is an attachment without its content. What the message did not say is empty.
type File struct {
	ID          string `json:"id"`
	Filename    string `json:"filename,omitempty"`
	ContentType string `json:"content_type"`
	Disposition string `json:"disposition,omitempty"`
	ContentID   string `json:"content_id,omitempty"`
	Size        int64  `json:"size"`
}

// Content is what of a received email is read out of its raw message. Whoever asked closes it when nothing of it is
// needed any more: until then it takes memory that others wait for.
type Content struct {
	HTML    *string // nil when it has none
	Text    *string
	Header  []message.Field
	Defects []string

	memory *reserved
}

// Close gives the content's memory back.
func (c *Content) Close() { c.memory.shrink(0) }
