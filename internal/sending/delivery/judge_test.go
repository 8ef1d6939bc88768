package delivery

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/report"
	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// parseReply parses a reply such as "550 5.1.1 text".
func parseReply(t testing.TB, line string) smtpclient.Reply {
	t.Helper()
	first, text, _ := strings.Cut(line, " ")
	code, err := strconv.Atoi(first)
	if err != nil {
		t.Fatalf("%q is not a reply", line)
	}
	r := smtpclient.Reply{Code: code, Text: text}
	if word, rest, _ := strings.Cut(text, " "); strings.Count(word, ".") == 2 && strings.HasPrefix(word, first[:1]+".") {
		r.Enhanced, r.Text = word, rest
	}
	return r
}

// These are short names for the constants of package report.
const (
	permanent, transient, undetermined = report.Permanent, report.Transient, report.Undetermined
	general, noEmail, mailboxFull      = report.General, report.NoEmail, report.MailboxFull
	messageTooLarge, contentRejected   = report.MessageTooLarge, report.ContentRejected
	attachmentRejected                 = report.AttachmentRejected
	recipients, ours, theirs           = report.Recipients, report.Ours, report.Hosts
)

// These are short names for the expected verdicts in the table.
const (
	hard   = "hard"   // a permanent bounce that suppresses the address
	perm   = "perm"   // a permanent bounce that does not suppress the address
	soft   = "soft"   // Transient
	unsure = "unsure" // Undetermined
	later  = "later"  // tried again
	less   = "less"   // retried, and the host asks us to send less mail
)

func TestJudge(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	const wait = 5 * time.Minute
	at := map[string]smtpclient.Stage{"": smtpclient.StageRcpt, "final": smtpclient.StageFinal,
		"mail":     smtpclient.StageMail,
		"greeting": smtpclient.StageGreeting, "hello": smtpclient.StageHello, "auth": smtpclient.StageAuth,
		"data": smtpclient.StageData}
	for _, row := range judged {
		a := answer{stage: at[row.stage], reply: parseReply(t, row.reply)}
		v := judge(a, wait, false, now)
		got, sub := "", ""
		switch {
		case v.state == delayed && v.throttle:
			got = less
		case v.state == delayed:
			got = later
		case v.bounce.Type == permanent && v.bounce.Suppress:
			got = hard
		case v.bounce.Type == permanent:
			got = perm
		case v.bounce.Type == transient:
			got = soft
		default:
			got = unsure
		}
		if v.bounce != nil {
			sub = v.bounce.SubType
			if v.bounce.Suppress && v.bounce.Type != permanent {
				t.Errorf("%s: suppresses without being permanent", row.reply)
			}
			if want := "smtp; " + a.reply.String(); v.bounce.DiagnosticCode[0] != want {
				t.Errorf("%s: diagnostic code %q, want %q", row.reply, v.bounce.DiagnosticCode, want)
			}
		} else {
			sub = classify(a.stage, a.reply).SubType
			if want := now.Add(wait); v.until.Before(want) {
				t.Errorf("%s: tried again at %v, before %v", row.reply, v.until, want)
			}
		}
		if got != row.want || sub != row.sub || v.fault != row.fault {
			t.Errorf("%s\n got %s %s %s\nwant %s %s %s", row.reply, got, sub, v.fault, row.want, row.sub, row.fault)
		}
	}
	if len(judged) < 120 {
		t.Errorf("the table has %d rows", len(judged))
	}
}

// judged lists real replies from mail hosts, with the expected verdict for each.
var judged = []struct {
	stage, reply string
	want, sub    string
	fault        report.Fault
}{
	// The address does not exist.
	{"", "550 5.1.1 The email account that you tried to reach does not exist. Please try double-checking the " +
		"recipient's email address for typos or unnecessary spaces. For more information, go to " +
		"https://support.google.com/mail/?p=NoSuchUser a1-20020a05 - gsmtp", hard, general, recipients},
	{"", "550 5.1.1 <nobody@example.net>: Recipient address rejected: User unknown in virtual mailbox table", hard,
		general, recipients},
	{"", "550 5.1.1 <nobody@example.net>: Recipient address rejected: User unknown in local recipient table", hard,
		general, recipients},
	{"", "550 5.1.1 <nobody@example.net> User unknown; rejecting", hard, general, recipients},
	{"", "550 5.1.1 User doesn't exist: nobody@example.net", hard, general, recipients},
	{"", "550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient nobody@example.net not found by SMTP address lookup", hard,
		general, recipients},
	{"", "550 5.4.1 Recipient address rejected: Access denied. [DB1EUR02FT012.eop-EUR02.prod.protection.outlook.com " +
		"2026-10-01T10:00:00.000Z 08DE]", hard, noEmail, recipients},
	{"", "550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302). " +
		"[AM4PEPF00025F98.EURPRD83.prod.outlook.com]", hard, general, recipients},
	{"final", "554 delivery error: dd This user doesn't have a yahoo.com account (nobody@yahoo.com) [0] - " +
		"mta1234.mail.ne1.yahoo.com", hard, general, recipients},
	{"final", "554 delivery error: dd Requested mail action aborted, mailbox not found", hard, general, recipients},
	{"", "552 1 Requested mail action aborted, mailbox not found", hard, general, recipients},
	{"", "550 Requested action not taken: mailbox unavailable", hard, general, recipients},
	{"", "550 No such user here", hard, general, recipients},
	{"", "550 No Such User Here\"", hard, general, recipients},
	{"", "550 Unknown user", hard, general, recipients},
	{"", "550 unknown user <nobody@example.net>", hard, general, recipients},
	{"", "550 Unrouteable address", hard, general, recipients},
	{"", "550 Invalid recipient <nobody@example.net>", hard, general, recipients},
	{"", "550 5.1.1 unknown or illegal alias: nobody@me.com", hard, general, recipients},
	{"", "550 5.1.1 <nobody@icloud.com>: user does not exist", hard, general, recipients},
	{"", "550 non-local recipient verification failed: no such recipient", hard, general, recipients},
	{"", "511 5.1.1 Mailbox does not exist", hard, general, recipients},
	{"", "553 5.3.0 <nobody@example.net>... No such user here", hard, general, recipients},
	{"", "550 5.2.0 No such mailbox", hard, general, recipients},
	{"", "550 5.1.0 Address rejected: user unknown", hard, general, recipients},
	{"", "550 5.0.0 User unknown", hard, general, recipients},
	{"", "551 5.1.1 user not found", hard, general, recipients},
	// The reply text determines the verdict because the reply code is not specific enough.
	{"", "554 5.7.1 <nobody@example.net>: Recipient address rejected: user unknown", hard, general, recipients},
	{"", "550 Recipient not found. <http://x.co/irbounce>", hard, general, recipients},
	{"", "550 Account not found", hard, general, recipients},
	{"", "501 5.1.3 Bad recipient address syntax", hard, general, recipients},
	{"", "550 5.1.6 Recipient no longer on server: old@example.net", hard, general, recipients},
	{"", "550 5.1.1 This address no longer accepts mail", hard, general, recipients},
	{"", "550 5.1.4 Recipient address reserved by or ambiguous in the directory", perm, general, recipients},
	{"", "550 #5.1.0 Address rejected.", unsure, undetermined, theirs},
	{"", "550 sorry, no mailbox here by that name (#5.1.1 - chkuser)", hard, general, recipients},
	{"", "554 5.1.1 nobody@example.net Addressee unknown", hard, general, recipients},
	{"", "550 5.1.1 Mailbox unavailable", hard, general, recipients},
	{"", "550 nobody@qq.com Mailbox not found. http://service.mail.qq.com/detail/122/1", hard, general, recipients},
	{"", "550 5.1.1 recipient invalid: nobody@mail.ru", hard, general, recipients},
	{"", "550 Message was not accepted -- invalid mailbox. Local mailbox nobody@mail.ru is unavailable: user not found",
		hard, general, recipients},

	// The mailbox is closed.
	{"", "550 5.2.1 The email account that you tried to reach is disabled. For more information, go to " +
		"https://support.google.com/mail/?p=DisabledUser", hard, general, recipients},
	{"", "550 5.2.1 The email account that you tried to reach is inactive. " +
		"https://support.google.com/mail/?p=DisabledUser", hard, general, recipients},
	{"", "554 delivery error: dd Not a valid recipient - account has been closed", hard, general, recipients},
	{"", "550 5.2.1 Mailbox disabled, not accepting messages", hard, general, recipients},
	{"", "550 Account is suspended", hard, general, recipients},
	{"", "550 5.2.1 This mailbox is temporarily disabled, try again later", soft, general, theirs},
	{"", "550 5.2.1 The user you are trying to contact is receiving mail at a rate that prevents additional messages " +
		"from being delivered.", soft, general, ours},

	// The domain does not accept mail.
	{"", "556 5.1.10 Domain does not accept mail (nullMX)", hard, general, recipients},
	{"", "556 Domain does not accept mail", hard, general, recipients},
	{"", "550 5.1.2 Bad destination host 'example.invalid'", perm, general, recipients},
	{"", "521 5.3.2 host does not accept mail", soft, general, theirs},
	{"", "521 example.net does not accept mail", perm, general, recipients},

	// Full mailboxes.
	{"", "552 5.2.2 The email account that you tried to reach is over quota and inactive. " +
		"https://support.google.com/mail/?p=OverQuotaPerm", soft, mailboxFull, recipients},
	{"", "452 4.2.2 The recipient's inbox is out of storage space. Please direct the recipient to " +
		"https://support.google.com/mail/?p=OverQuotaTemp", later, mailboxFull, recipients},
	{"", "552 5.2.2 Mailbox full", soft, mailboxFull, recipients},
	{"", "554 5.2.2 mailbox full; STOREDRV.Deliver; Recipient mailbox full", soft, mailboxFull, recipients},
	{"", "552 Requested mail action aborted: exceeded storage allocation", soft, mailboxFull, recipients},
	{"", "550 mailbox is full (MBOXFULL)", soft, mailboxFull, recipients},
	{"", "452 4.2.2 Mailbox full", later, mailboxFull, recipients},
	{"", "422 Recipient mailbox is full: over quota", later, mailboxFull, recipients},
	{"", "550 5.7.1 quota exceeded for this user", soft, mailboxFull, recipients},
	{"", "552 Quota violation for nobody@example.net", soft, mailboxFull, recipients},

	// Size.
	{"mail", "552 5.3.4 Message size exceeds fixed limit", soft, messageTooLarge, ours},
	{"mail", "552 5.3.4 Message too big for system", soft, messageTooLarge, ours},
	{"final", "552 5.2.3 Your message exceeded Google's message size limits. Please visit " +
		"https://support.google.com/mail/?p=MaxSizeError", soft, messageTooLarge, ours},
	{"final", "554 5.3.4 Message too large", soft, messageTooLarge, ours},
	{"mail", "552 message size exceeds maximum allowed", soft, messageTooLarge, ours},
	{"final", "523 the message size limit was exceeded", soft, messageTooLarge, ours},

	// Authentication.
	{"final", "550 5.7.26 This mail has been blocked because the sender is unauthenticated. Gmail requires all senders " +
		"to authenticate with either SPF or DKIM.", soft, general, ours},
	{"final", "550 5.7.26 Unauthenticated email from example.org is not accepted due to domain's DMARC policy. Please " +
		"contact the administrator of example.org domain", soft, general, ours},
	{"final", "550 5.7.515 Access denied, sending domain EXAMPLE.ORG does not meet the required authentication level.",
		soft, general, ours},
	{"final", "550 5.7.509 Access denied, sending domain example.org does not pass DMARC verification and has a DMARC " +
		"policy of reject.", soft, general, ours},
	{"", "550 5.7.23 The message was rejected because Sender Policy Framework violation", soft, general, ours},
	{"final", "554 5.7.5 Permanent error evaluating DMARC policy", soft, general, theirs},
	{"final", "554 5.7.9 Message not accepted for policy reasons. See https://postmaster.yahooinc.com/error-codes", soft,
		general, ours},
	{"final", "550 5.7.1 Email rejected per DMARC policy for example.org", soft, general, ours},
	{"", "550 5.7.1 SPF check failed for example.org", soft, general, ours},
	{"", "550 5.7.25 The IP address sending this message does not have a PTR record setup", soft, general, ours},
	{"greeting", "554 5.7.1 Client host rejected: cannot find your reverse hostname, [192.0.2.1]", later, general, ours},
	{"final", "421 4.7.26 This mail has been rate limited because it is unauthenticated. Gmail requires all senders to " +
		"authenticate", less, general, ours},
	{"final", "550 5.7.30 Mail rejected because DKIM does not pass", soft, general, ours},
	{"final", "550 5.7.40 DMARC alignment failed", soft, general, ours},

	// Reputation and block lists.
	{"", "550 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using Spamhaus. To request removal from this " +
		"list see https://www.spamhaus.org/query/ip/192.0.2.1", soft, general, ours},
	{"", "554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org", soft, general, ours},
	{"mail", "550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. Please contact your Internet service " +
		"provider since part of their network is on our block list (S3140).", soft, general, ours},
	{"mail", "550 SC-001 (COL004) Unfortunately, messages from 192.0.2.1 weren't sent since part of their network is " +
		"on our block list", soft, general, ours},
	{"mail", "550 5.7.511 Access denied, banned sender[192.0.2.1]. To request removal from this list please forward " +
		"this message to delist@messaging.microsoft.com", soft, general, ours},
	{"", "550 5.7.606 Access denied, banned sending IP [192.0.2.1]", soft, general, ours},
	{"", "550 5.7.1 [192.0.2.1] Our system has detected that this message is likely suspicious due to the very low " +
		"reputation of the sending IP address.", soft, general, ours},
	{"", "553 5.7.1 [BL21] Connections will not be accepted from 192.0.2.1, because the ip is in Spamhaus's list", soft,
		general, ours},
	{"greeting", "554 5.7.1 [PH01] Email not accepted for policy reasons. Please visit " +
		"https://postmaster.yahooinc.com/error-codes", less, general, ours},
	{"final", "554 5.7.9 [PH01] Email not accepted for policy reasons", soft, general, ours},
	{"", "550 5.1.1 Mail from your host is blocked by Barracuda Reputation", soft, general, ours},
	{"", "550 5.1.1 Blocked - see https://ipcheck.proofpoint.com/?ip=192.0.2.1", soft, general, ours},
	{"greeting", "554 resimta-po-01v.sys.comcast.net comcast 192.0.2.1 Comcast block for spam.", later, contentRejected,
		ours},
	{"greeting", "554 IP=192.0.2.1 - A problem occurred. (Ask your postmaster for help or to contact " +
		"tosa@rx.t-online.de to clarify.)", later, undetermined, theirs},
	{"greeting", "554 5.7.1 Your access to this mail system has been rejected due to the sending MTA's poor reputation.",
		less, general, ours},
	{"", "550 5.7.1 Connection refused: your IP is listed in bl.spamcop.net", soft, general, ours},
	{"", "571 Message refused by blocklist", soft, general, ours},
	{"mail", "550 5.7.1 [CS01] Message blocked due to spam content in the message. Please visit http://postmaster.example",
		soft, general, ours},
	{"", "550 Administrative prohibition - envelope blocked - https://community.mimecast.com/docs/DOC-1369", soft, general,
		ours},
	{"", "550 5.7.708 Service unavailable. Access denied, traffic not accepted from this IP.", soft, general, ours},

	// Content.
	{"final", "550 5.7.1 Our system has detected that this message is likely unsolicited mail. To reduce the amount of " +
		"spam sent to Gmail, this message has been blocked.", soft, contentRejected, ours},
	{"final", "554 5.7.1 Message rejected as spam by Content Filtering.", soft, contentRejected, ours},
	{"final", "550 High probability of spam", soft, contentRejected, ours},
	{"final", "554 5.6.0 message content rejected", soft, contentRejected, ours},
	{"final", "550 5.7.1 This message contains a virus (Eicar-Test-Signature)", soft, contentRejected, ours},
	{"final", "554 5.7.1 The message from (<a@example.org>) with the subject of (x) matches a profile the Internet " +
		"community may consider spam (Cyren).", soft, contentRejected, ours},
	{"final", "550 5.1.1 Message rejected as spam", soft, contentRejected, ours},
	{"final", "554 5.7.7 Message integrity failure", soft, contentRejected, ours},
	{"final", "554 rejected due to spam URL in content", soft, contentRejected, ours},
	{"final", "550 Message headers fail syntax check", soft, general, ours},
	{"final", "552 5.7.0 This message was blocked because its content presents a potential security issue. Please " +
		"visit https://support.google.com/mail/?p=BlockedMessage", soft, attachmentRejected, ours},
	{"final", "550 5.7.1 Attachment type not allowed: .exe", soft, attachmentRejected, ours},
	{"final", "554 5.7.1 banned file extension", soft, attachmentRejected, ours},

	// Policy of theirs.
	{"", "550 5.7.1 Message rejected due to local policy.", soft, general, theirs},
	{"", "550 5.7.133 RESOLVER.RST.SenderNotAuthenticatedForGroup; authentication required; Delivery restriction check " +
		"failed", soft, general, theirs},
	{"", "550 5.7.124 Sender not in allowed-senders list", soft, general, theirs},
	{"", "554 5.7.1 <nobody@example.net>: Relay access denied", soft, general, theirs},
	{"", "550 5.7.1 Unable to relay", soft, general, theirs},
	{"", "550 5.7.64 TenantAttribution; Relay Access Denied", soft, general, theirs},
	{"", "550 relay not permitted", soft, general, theirs},
	{"", "551 User not local; please try <forward-path>", soft, general, theirs},
	{"final", "554 Reject due to policy restrictions", soft, general, theirs},
	{"", "550 5.7.1 Recipient not authorized to receive mail from outside", soft, general, theirs},

	// Our sender.
	{"mail", "550 5.1.8 <a@example.org>: Sender address rejected: Domain not found", soft, general, ours},
	{"", "553 5.1.8 Domain of sender address a@example.org does not exist", soft, general, ours},
	{"", "550 5.1.7 Invalid sender address", soft, general, ours},
	{"", "550 5.1.0 Sender rejected", soft, general, ours},
	{"", "550 Sender verify failed: no such user at example.org", soft, general, ours},
	{"mail", "550 5.1.1 user unknown", soft, general, theirs}, // a reply to MAIL does not concern the recipient

	// Protocol.
	{"", "503 5.5.1 Bad sequence of commands", soft, general, ours},
	{"mail", "501 5.5.4 Syntax error in parameters", soft, general, ours},
	{"mail", "500 5.5.2 Syntax error, command unrecognized", soft, general, ours},
	{"mail", "530 5.7.0 Must issue a STARTTLS command first", soft, general, theirs},
	{"mail", "530 5.7.1 Authentication required", soft, general, ours},
	{"auth", "535 5.7.8 Authentication credentials invalid", later, general, ours},
	{"", "550 5.6.7 the host does not accept international addresses (SMTPUTF8)", soft, general, theirs},
	{"final", "554 5.4.6 Too many hops", perm, general, theirs},
	{"final", "554 5.4.14 Hop count exceeded - possible mail loop ATTR34", perm, general, theirs},
	{"final", "554 5.3.0 unspecified system trouble", soft, general, theirs},
	{"", "550 I do not like you", unsure, undetermined, theirs},
	{"", "550", unsure, undetermined, theirs},
	{"final", "554 Transaction failed", unsure, undetermined, theirs},

	// Temporary refusals.
	{"", "450 4.2.0 <nobody@example.net>: Recipient address rejected: Greylisted, see " +
		"http://postgrey.schweikert.ch/help/example.net.html", later, general, theirs},
	{"", "451 4.7.1 Greylisting in action, please come back in 00:04:58", later, general, theirs},
	{"", "451 4.7.1 Please try again later (greylisted)", later, general, theirs},
	{"", "450 4.7.1 You've been greylisted; retry after 300 seconds", later, general, theirs},
	{"", "421 4.7.0 Try again later, closing connection. (EHLO) a1-20020 - gsmtp", less, general, theirs},
	{"", "450 4.2.1 The user you are trying to contact is receiving mail too quickly. Please resend your message at a " +
		"later time. https://support.google.com/mail/?p=ReceivingRate", later, general, recipients},
	{"final", "421 4.7.28 Gmail has detected an unusual rate of unsolicited mail originating from your IP address. To " +
		"protect our users from spam, mail sent from your IP address has been temporarily rate limited.", less, general,
		ours},
	{"mail", "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to unexpected volume or user " +
		"complaints - 4.16.55.1; see https://postmaster.yahooinc.com/error-codes", less, general, ours},
	{"greeting", "421 RP-001 (SNT004-MC1F43) Unfortunately, some messages from 192.0.2.1 weren't sent. Please try " +
		"again. We have limits for how many messages can be sent per hour and per day.", less, general, ours},
	{"mail", "451 4.7.650 The mail server [192.0.2.1] has been temporarily rate limited due to IP reputation.", less,
		general, ours},
	{"mail", "451 4.7.500 Server busy. Please try again later from [192.0.2.1]. (S77719)", less, general, ours},
	{"greeting", "421 4.3.2 Service not available, too many connections from your IP", less, general, ours},
	{"mail", "452 4.5.3 Your message has too many recipients", later, general, ours},
	{"", "452 4.3.1 Insufficient system storage", later, general, theirs},
	{"", "451 4.3.0 Temporary lookup failure", later, general, theirs},
	{"", "450 4.1.8 <a@example.org>: Sender address rejected: Domain not found", later, general, ours},
	{"", "451 Temporary local problem - please try later", later, general, theirs},
	{"final", "421 4.7.0 [IPTS04] Messages temporarily deferred. Rate limited.", less, general, ours},
	{"final", "451 4.7.0 Temporary server error. Please try again later. PRX2", later, general, theirs},
	{"mail", "450 4.7.25 Client host rejected: cannot find your hostname, [192.0.2.1]", less, general, ours},
	{"", "450 4.1.1 user unknown", later, general, recipients},
	{"", "450 4.4.3 DNS lookup failure for example.org, try again later", later, general, theirs},
	{"hello", "421 4.4.2 Connection dropped", less, general, theirs},
}

func TestJudgeWhenTheScheduleIsOver(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for reply, sub := range map[string]string{"451 4.7.1 greylisted": general, "452 4.2.2 Mailbox full": mailboxFull,
		"450 4.1.1 user unknown": general, "451 anything": general, "450 4.4.1 the host cannot be reached": general} {
		v := judge(answer{stage: smtpclient.StageRcpt, reply: parseReply(t, reply)}, time.Minute, true, now)
		if v.state != bounced || v.bounce.Type != transient || v.bounce.SubType != sub || v.bounce.Suppress {
			t.Errorf("%s: %+v", reply, v.bounce)
		}
		if diff := cmp.Diff([]string{"smtp; " + reply}, v.bounce.DiagnosticCode); diff != "" {
			t.Error(diff)
		}
	}
	unknown := judge(answer{stage: smtpclient.StageFinal, unknown: true, reply: ownReply(451, "4.4.2", "cut")},
		time.Minute,
		false, now)
	if unknown.state != delayed || unknown.until != now.Add(time.Minute) {
		t.Errorf("an unknown outcome is %+v; it must be tried again", unknown)
	}
	if v := judge(answer{stage: smtpclient.StageFinal, reply: parseReply(t, "250 2.0.0 ok")}, 0, true,
		now); v.state != delivered {
		t.Errorf("250 after the schedule is %+v", v)
	}
}

func TestWaitHint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"try again in 5 minutes": 5 * time.Minute, "retry after 300 seconds": 5 * time.Minute,
		"Please try again in 60s":   time.Minute,
		"greylisted for 10 minutes": 10 * time.Minute, "Try again later": 0, "come back in 00:04:58": 0,
		"wait 2 hours":               2 * time.Hour,
		"error 451 after 30 seconds": 0, "try again in 99999999 seconds": 0, "": 0, "retry in 20 hours": 20 * time.Hour,
		"retry 5": 0, "try again in 1 day": 0, "Greylisting in effect, please come back later (300 sec)": 5 * time.Minute,
		"wait 0 seconds, or better 5 minutes": 5 * time.Minute, "waitz 5 minutes": 0, "wait zz 86400 seconds": 24 * time.Hour,
		"wait 86401 seconds, or 5 minutes": 5 * time.Minute,
	} {
		if got := waitHint(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	now := time.Now()
	v := judge(answer{stage: smtpclient.StageRcpt, reply: parseReply(t, "450 4.7.1 retry in 20 hours")}, time.Minute,
		false, now)
	if want := now.Add(hintMax); v.until != want {
		t.Errorf("a host that asks for 20 hours gets %v", v.until.Sub(now))
	}
	v = judge(answer{stage: smtpclient.StageRcpt, reply: parseReply(t, "450 4.7.1 retry in 1 second")}, time.Minute, false,
		now)
	if want := now.Add(time.Minute); v.until != want {
		t.Errorf("a hint that is shorter than the schedule leads to %v", v.until.Sub(now))
	}
}

// If a host defers a message before the RCPT command, the verdict is soft, because the recipient is not the cause.
func TestSoft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		stage smtpclient.Stage
		reply string
		local bool
		soft  bool
	}{
		{smtpclient.StageGreeting, "450 later", false, true}, {smtpclient.StageMail, "450 later", false, true},
		{smtpclient.StageMail, "450 later", true, false}, {smtpclient.StageHello, "450 later", false, false},
		{smtpclient.StageRcpt, "450 later", false, false}, {smtpclient.StageFinal, "450 later", false, false},
		{smtpclient.StageMail, "421 4.7.0 too many connections", false, false}, // this reply asks us to send less mail
	} {
		a := answer{stage: c.stage, reply: parseReply(t, c.reply)}
		a.reply.Local = c.local
		if v := judge(a, time.Minute, false, time.Now()); v.soft != c.soft || v.soft && v.throttle {
			t.Errorf("%+v: %+v", c, v)
		}
	}
}

func FuzzJudge(f *testing.F) {
	for _, row := range judged[:20] {
		f.Add(550, "5.1.1", row.reply, false)
	}
	f.Add(421, "", "try again in 1s", true)
	f.Fuzz(func(t *testing.T, code int, enhanced, text string, exhausted bool) {
		if code < 200 || code > 599 {
			return // not a valid reply code
		}
		now := time.Unix(1_800_000_000, 0)
		v := judge(answer{stage: smtpclient.StageRcpt, reply: smtpclient.Reply{Code: code, Enhanced: enhanced, Text: text}},
			time.Minute, exhausted, now)
		switch {
		case code/100 == 2 && v.state != delivered,
			v.state == delayed && (exhausted || v.until.Before(now.Add(time.Minute)) || v.until.After(now.Add(hintMax))),
			v.state == bounced && v.bounce == nil,
			v.bounce != nil && v.bounce.Suppress && (v.bounce.Type != permanent || v.fault != recipients || code/100 != 5):
			t.Errorf("%d %s %q, exhausted %v: %+v %+v", code, enhanced, text, exhausted, v, v.bounce)
		}
	})
}
