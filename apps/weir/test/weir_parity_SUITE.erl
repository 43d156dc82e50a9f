%% Sequences of operations give the same results and messages, in the same order, on stock sockets and on Weir.
-module(weir_parity_SUITE).

-compile([export_all, nowarn_export_all]).

-define(WEIR, [{tcp_module, weir_tcp}]).

suite() ->
    [{timetrap, {minutes, 10}}].

all() ->
    [known_sequences, known_differences, stock_agrees_with_itself, weir_agrees_with_stock].

init_per_suite(Config) ->
    weir_test_peer:init_group(weir, Config).

end_per_suite(Config) ->
    weir_test_peer:end_group(weir, Config).

init_per_testcase(_Case, Config) ->
    %% Without the native library, stock would be compared with stock.
    true = weir_nif:available(),
    weir_test_peer:init_case(Config).

end_per_testcase(_Case, Config) ->
    weir_test_peer:end_case(Config).

%% Otherwise the comparison with Weir would mean nothing.
stock_agrees_with_itself(_Config) ->
    [] = prop_parity:repeat([], [], 160).

weir_agrees_with_stock(_Config) ->
    [] = prop_parity:repeat([], ?WEIR, 400).

%% Sequences that once differed give exactly the same observations.
known_sequences(_Config) ->
    [] = [
        {Name, Stock, Weir}
     || {Name, Sequence} <- known(),
        {Stock, Weir} <- [prop_parity:observe_both(Sequence, [], ?WEIR)],
        Stock =/= Weir
    ].

%% Only the intended differences (docs/differences.md), and nothing else in these sequences.
known_differences(_Config) ->
    [] = [
        {Name, Result}
     || {Name, Sequence} <- differences(), (Result = prop_parity:agree(Sequence, [], ?WEIR)) =/= true
    ].

differences() ->
    [
        {the_end_after_a_bad_packet_is_told_to_who_monitors,
            {connected, [{packet, line}, {buffer, 1460}], [
                {a, monitor}, {b, monitor}, {peer, {send, <<247, 74, 83, 5>>}}, {a, {setopts, [{packet, 4}]}}
            ]}},
        {a_header_that_is_too_long_behind_a_line,
            {connected, [{buffer, 1460}, {packet, http_bin}, {packet_size, 20}], [
                {a, monitor}, {peer, {send, <<"\na-name-of-more-than-">>}}
            ]}},
        {a_line_is_put_back_where_headers_are_next,
            {accepted, [{packet, http}, {buffer, 1460}], [
                {peer, {send, <<"GET / HTTP/1.1\r\n">>}},
                {a, {unrecv, <<"GET / HTTP/1.1\r\n">>}},
                {peer, {send, <<"GET / HTTP/1.1\r\n">>}}
            ]}},
        {a_type_of_header_fields_before_that_of_requests,
            {accepted, [{packet, http_bin}, {buffer, 1460}, {active, once}], [
                {b, {setopts, [{packet, httph}]}}, {c, {setopts, [{packet, http_bin}]}}, {peer, {send, <<"\n">>}}
            ]}},
        {a_buffer_has_grown_and_packets_are_not_limited_any_more,
            {connected, [{packet, httph_bin}, {buffer, 10}, {packet_size, 100}, {active, true}], [
                {peer, {send, <<"Host: example\r\nHo">>}},
                {a, {setopts, [{packet_size, 0}]}},
                {peer, {send, <<"st: example\r\n\r\n">>}}
            ]}},
        {half_a_line_of_another_type_fills_the_buffer,
            {connected, [{buffer, 2}], [
                {c, {setopts, [{packet_size, 1000}, {packet, httph_bin}]}},
                {peer, {send, <<73, 141>>}},
                {b, {setopts, [{packet, line}]}}
            ]}},
        {the_delimiter_changes_behind_half_a_line,
            {connected, [{packet, line}, {buffer, 1460}], [
                {peer, {send, <<0, 174>>}}, {a, {setopts, [{active, once}, {line_delimiter, 0}]}}
            ]}},
        {the_end_is_not_taken_along_to_another_owner,
            {connected, [{buffer, 1460}, {exit_on_close, false}], [
                {peer, close},
                {a, {setopts, [{exit_on_close, true}]}},
                {a, {give_to, c}},
                {c, {send, <<1, 2, 3>>}}
            ]}},
        {what_follows_a_bad_packet,
            {connected, [{packet, fcgi}, {buffer, 1460}, {exit_on_close, false}], [
                {peer, {send, <<1, 4, 0, 1, 0, 2, 0, 0>>}},
                {b, {setopts, [{active, false}]}},
                {peer, {send, <<"ab", 9, 9, 9, 9, 9, 9, 9, 9>>}},
                {a, {setopts, [{active, once}]}},
                {peer, {send, <<1, 4, 0, 1, 0, 1, 0, 0, "c">>}},
                {a, {setopts, [{active, once}]}},
                {b, {setopts, [{active, 3}]}}
            ]}}
    ].

known() ->
    [
        {a_header_field_stays_one_when_requests_are_next,
            {accepted, [{packet, httph_bin}, {buffer, 1460}, {active, true}], [
                {peer, {send, <<"Host: a\r\nH">>}},
                {a, {setopts, [{packet, http_bin}]}},
                {peer, {send, <<"ost: b\r\n\r\nGET / HTTP/1.1\r\n">>}}
            ]}},
        {an_option_that_listen_does_not_take, {accepted, [{buffer, 1460}, {line_delimiter, 10}], []}},
        {watermarks_that_cross,
            {accepted, [{buffer, 1460}, {high_watermark, 1}, {low_watermark, 500}], [
                {a, {getopts, [high_watermark, low_watermark]}}
            ]}},
        {more_is_put_back_than_the_buffer_holds, {accepted, [{buffer, 1}], [{a, {unrecv, <<0, 0, 0, 0>>}}]}},
        {counters_of_what_was_put_back,
            {accepted, [{buffer, 1460}], [{a, {unrecv, <<0>>}}, {a, {getstat, [recv_oct, recv_cnt]}}]}},
        {counters_of_what_was_not_delivered,
            {accepted, [{buffer, 1460}, {active, false}], [
                {peer, {send, <<"123456789">>}}, {a, {recv, 10, 0}}, {a, {getstat, [recv_oct]}}
            ]}},
        {deviation_of_packets_above_and_below_the_average,
            {accepted, [{buffer, 1460}], [
                {peer, {send, <<0, 0>>}},
                {peer, {send, <<0, 0, 0, 0, 0>>}},
                {a, {getstat, [recv_avg, recv_dvi]}}
            ]}},
        {the_end_is_told_once,
            {accepted, [{buffer, 1460}, {exit_on_close, false}], [
                {peer, close}, {a, {setopts, [{active, true}]}}, {a, {setopts, [{active, once}]}}
            ]}},
        {the_end_is_told_once_also_by_a_send,
            {accepted, [{buffer, 1460}, {packet, 2}, {exit_on_close, false}], [
                {peer, reset}, {a, {send, <<>>}}, {a, {send, <<0>>}}, {a, {send, <<0>>}}
            ]}},
        {an_error_is_told_again_and_the_end_is_not,
            {accepted, [{packet, http}, {buffer, 1460}, {packet_size, 1}, {exit_on_close, false}], [
                {peer, {send, <<"GET / HTTP/1.1\r\n">>}},
                {peer, {send, <<"GET / HTTP/1.1\r\n">>}},
                {a, flush},
                {a, {setopts, [{active, 3}]}}
            ]}},
        {put_back_behind_a_bad_packet,
            {accepted, [{packet, 4}, {buffer, 1460}, {exit_on_close, false}], [
                {peer, {send, <<128, 0, 0, 0>>}}, {peer, {send, <<0, 0, 0, 0>>}}, {a, {unrecv, <<0, 0, 0, 0>>}}
            ]}},
        {what_stands_behind_a_bad_packet,
            {accepted, [{packet, 1}, {buffer, 1460}, {active, once}], [
                {a, {setopts, [{exit_on_close, false}, {packet_size, 1}]}},
                {peer, {send, <<2, 0, 0>>}},
                {peer, {send, <<1, 0>>}},
                {a, {setopts, [{active, true}]}}
            ]}},
        {a_closed_socket_takes_options,
            {accepted, [{packet, line}, {buffer, 1460}, {exit_on_close, false}], [
                {a, {send, <<0>>}},
                {peer, close},
                {a, {send, <<0>>}},
                {a, {send, <<0>>}},
                {a, {setopts, [{exit_on_close, true}]}},
                {a, {setopts, [{packet, raw}]}},
                {a, {getopts, [packet, active]}},
                {a, {setopts, [{active, false}]}}
            ]}},
        {a_message_for_ports_goes_with_the_socket,
            {accepted, [{packet, 4}, {buffer, 1460}, {deliver, port}], [{peer, {send, <<0:32>>}}, {a, {give_to, b}}]}},
        {a_send_after_shutdown,
            {accepted, [{buffer, 1460}, {show_econnreset, true}], [{a, {shutdown, write}}, {a, {send, <<0>>}}]}},
        {a_failed_send_beside_a_recv,
            {accepted, [{active, false}, {show_econnreset, true}], [
                {a, {shutdown, write}}, {b, {recv_waiting, 0}}, {a, {send, <<0>>}}
            ]}}
    ].
