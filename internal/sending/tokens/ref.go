package tokens

import (
	"encoding/binary"

	"github.com/google/uuid"
)

// Ref is the part of a token that names an email: the short id of the email's team (see package teams) and the id of
// the email. A key of a row begins with its team, so a token that named only the email could not be looked up where
// teams are stored apart.
type Ref struct {
	Team    uint32
	EmailID string
}

const refSize = 4 + 16

// append appends the ref in bytes. If EmailID is not a UUID, append returns false.
func (r Ref) append(dst []byte) ([]byte, bool) {
	u, err := uuid.Parse(r.EmailID)
	if err != nil {
		return dst, false
	}
	return append(binary.BigEndian.AppendUint32(dst, r.Team), u[:]...), true
}

// readRef reads a ref at the beginning of b, which has at least refSize bytes.
func readRef(b []byte) Ref {
	return Ref{Team: binary.BigEndian.Uint32(b), EmailID: uuid.UUID(b[4:refSize]).String()}
}
