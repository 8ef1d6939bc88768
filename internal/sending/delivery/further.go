package delivery

import (
	"context"

	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// sendFurther sends the message to the recipients beyond the host's LIMITS, in further transactions with this host (RFC
// 9422). A transaction uses the same connection or, if the host accepts no more messages over it, another one. If no
// further transaction can begin at once, its recipients keep the answer 452, and the next try is for them alone.
func (s *Service) sendFurther(ctx context.Context, h hop, team string, out *outcome, env smtpclient.Envelope,
	msg [][]byte) {
	for left := beyondLimits(out.answers); len(left) > 0 && ctx.Err() == nil; left = beyondLimits(out.answers) {
		further := env
		further.To = make([]string, len(left))
		for i, at := range left {
			further.To[i] = env.To[at]
		}
		next, news, _ := s.converse(ctx, h, team, further, msg)
		if news != nil || next.withheld != nil || len(next.answers) != len(left) {
			return
		}
		for i, at := range left {
			out.answers[at] = next.answers[i]
		}
		out.conversation += next.conversation
		out.took += next.took
		if next.response != untried {
			out.response = next.response
		}
	}
}

// beyondLimits returns the indexes of the answers for recipients beyond the host's LIMITS.
func beyondLimits(all []answer) (left []int) {
	for i := range all {
		if all[i].reply.BeyondLimits() {
			left = append(left, i)
		}
	}
	return left
}
