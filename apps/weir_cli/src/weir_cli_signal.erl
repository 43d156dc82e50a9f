%% @doc Turns signals into messages. Replaces the kernel's handler, which logs SIGTERM and stops the node at once.
-module(weir_cli_signal).
-behaviour(gen_event).

-export([report_to/1]).
-export([init/1, handle_event/2, handle_call/2, handle_info/2]).

%% @doc Sends `Pid' the message `stop' for every SIGTERM, `reload' for every SIGHUP and `places' for every SIGUSR2. The
%% last two only arrive after a call of {@link os:set_signal/2}.
-spec report_to(pid()) -> ok.
report_to(Pid) ->
    gen_event:swap_handler(erl_signal_server, {erl_signal_handler, []}, {?MODULE, Pid}).

-spec init({pid(), term()}) -> {ok, pid()}.
init({Pid, _OfTheHandlerBefore}) ->
    {ok, Pid}.

-spec handle_event(atom(), pid()) -> {ok, pid()}.
handle_event(sigterm, Pid) ->
    Pid ! stop,
    {ok, Pid};
handle_event(sighup, Pid) ->
    Pid ! reload,
    {ok, Pid};
handle_event(sigusr2, Pid) ->
    Pid ! places,
    {ok, Pid};
handle_event(Signal, Pid) ->
    %% The kernel's handler takes all other signals.
    {ok, _} = erl_signal_handler:handle_event(Signal, []),
    {ok, Pid}.

-spec handle_call(term(), pid()) -> {ok, ok, pid()}.
handle_call(_Request, Pid) ->
    {ok, ok, Pid}.

-spec handle_info(term(), pid()) -> {ok, pid()}.
handle_info(_Info, Pid) ->
    {ok, Pid}.
