package domains

// HintTopic is the topic of hints about changed domains. The payload is a domain's id.
const HintTopic = hintTopic

// InboundHost returns the host of this installation that receives mail for a domain.
func (s *Service) InboundHost(d *Domain) string { return s.c.region(d.Region).InboundHost }
