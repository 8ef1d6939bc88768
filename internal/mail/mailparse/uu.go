package mailparse

import (
	"bytes"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/message"
)

// takeUU removes the uuencoded files from a text, adds them to the message's files, and returns the rest.
//
// Old programs put files into the text of messages that are not MIME, without a mention in the header. Readers
// differ: Thunderbird and Outlook show them as attachments, Python's email package and MimeKit leave the text as it
// is. A user of an API has no other way to get at such a file, so takeUU follows Thunderbird's rule: only if the
// message has neither MIME-Version nor Content-Type. Thunderbird accepts any line that begins a file, and so takes
// prose for one; here the file must be whole and valid to its last character, and everything else stays text. Files
// beyond maxParts stay text, too.
func (w *walker) takeUU(text []byte) []byte {
	const mark = "begin "
	var rest []byte
	kept := 0
	for at := 0; w.parts < maxParts; {
		if !bytes.HasPrefix(text[at:], []byte(mark)) {
			n := bytes.Index(text[at:], []byte("\n"+mark))
			if n < 0 {
				break
			}
			at += n + 1
		}
		f, next, ok := decode.FindUU(text, at)
		if ok {
			rest = append(rest, text[kept:at]...)
			kept = next
			w.parts++
			w.out.Files = append(w.out.Files, File{Filename: f.Name, ContentType: message.TypeByFilename(f.Name),
				Disposition: "attachment", Content: f.Content()})
		}
		at = next
	}
	if kept == 0 {
		return text
	}
	return append(rest, text[kept:]...)
}
